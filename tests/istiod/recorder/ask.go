package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	v3 "istio.io/istio/pilot/pkg/xds/v3"
)

// One row of proxies.yaml.
type proxy struct {
	Name, Type, IP, Pod, Namespace, Locality string
	Metadata                                 map[string]any
	Subscribe                                map[string][]string
	Types                                    []string
}

// Gateways come before sidecars.
func (p proxy) rank() int {
	if p.Type == "sidecar" {
		return 1
	}
	return 0
}

func (p proxy) isGRPC() bool { return p.Metadata["GENERATOR"] == "grpc" }

func (p proxy) metadata() map[string]any {
	out := map[string]any{
		"NAMESPACE": p.Namespace, "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.32.0", "MESH_ID": "cluster.local",
		"SERVICE_ACCOUNT": "default", "INSTANCE_IPS": p.IP, "INTERCEPTION_MODE": "REDIRECT", "NAME": p.Pod,
	}
	for key, value := range p.Metadata {
		out[key] = value
	}
	return out
}

func (p proxy) node() (*core.Node, error) {
	of, err := structpb.NewStruct(p.metadata())
	if err != nil {
		return nil, err
	}
	parts := append(splitN(p.Locality, '/', 3), "", "", "")
	return &core.Node{
		Id:       fmt.Sprintf("%s~%s~%s.%s~%s.svc.cluster.local", p.Type, p.IP, p.Pod, p.Namespace, p.Namespace),
		Metadata: of,
		Locality: &core.Locality{Region: parts[0], Zone: parts[1], SubZone: parts[2]},
	}, nil
}

// Resources by type name.
type answers map[string][]any

// How long istiod may take to answer one proxy.
const answerTimeout = 10 * time.Second

// Asks as the recorded cases were asked for: clusters, their endpoints, listeners, their routes, then what is named anywhere.
func ask(connection *grpc.ClientConn, of proxy) (answers, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	identity := fmt.Sprintf("spiffe://cluster.local/ns/%s/sa/%s", of.Namespace, of.metadata()["SERVICE_ACCOUNT"])
	ctx = metadata.AppendToOutgoingContext(ctx, identityKey, identity)
	node, err := of.node()
	if err != nil {
		return nil, err
	}
	service := discovery.NewAggregatedDiscoveryServiceClient(connection)
	if of.isGRPC() {
		return askGRPC(ctx, service, node, of)
	}
	stream, err := service.DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	client := &delta{stream: stream, node: node}
	if of.Type == "ztunnel" {
		return askZtunnel(client, of)
	}
	return askEnvoy(client, of)
}

func askEnvoy(client *delta, of proxy) (answers, error) {
	out := answers{}
	add := func(name, kind string, names []string, always bool) []any {
		if client.err != nil || len(names) == 0 && !always {
			return nil
		}
		out[name] = client.ask(kind, names)
		return out[name]
	}
	clusters := add("clusters", v3.ClusterType, nil, true)
	add("endpoints", v3.EndpointType, endpointNames(clusters), false)
	listeners := add("listeners", v3.ListenerType, nil, true)
	add("routes", v3.RouteType, textsUnder(listeners, "routeConfigName"), false)
	add("secrets", v3.SecretType, adsSecrets([]any{clusters, listeners}), false)
	add("extensions", v3.ExtensionConfigurationType, discovered(listeners), false)
	if of.Metadata["DNS_CAPTURE"] == "true" {
		add("nametable", v3.NameTableType, nil, true)
	}
	return out, client.err
}

func askZtunnel(client *delta, of proxy) (answers, error) {
	kinds := map[string]string{
		"addresses": v3.AddressType, "workloads": v3.WorkloadType, "authorizations": v3.WorkloadAuthorizationType,
	}
	out := answers{}
	client.wrap = true
	for _, name := range of.Types {
		out[name] = []any{}
		client.send(&discovery.DeltaDiscoveryRequest{TypeUrl: kinds[name], ResourceNamesSubscribe: of.Subscribe[name]})
		if response := client.receiveWithin(silence); response != nil && response.TypeUrl == kinds[name] {
			out[name] = client.items(response)
		}
	}
	return out, client.err
}

// How long ztunnel and gRPC applications wait for what may never come: they get no endpoints that could be asked for behind it.
const silence = time.Second

// A stream of incremental discovery. The first error stays.
type delta struct {
	stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	node   *core.Node
	// Whether a resource is written with its name and aliases.
	wrap      bool
	asked     int
	responses chan *discovery.DeltaDiscoveryResponse
	err       error
}

// The answer to one request, acknowledged. istiod says nothing where it has nothing of a type: endpoints of a cluster that is not
// there are asked for behind it, which it always answers as none, and in order.
func (d *delta) ask(kind string, names []string) []any {
	d.asked++
	behind := fmt.Sprintf("outbound|1||none-%d.invalid", d.asked)
	d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: kind, ResourceNamesSubscribe: names})
	d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: v3.EndpointType, ResourceNamesSubscribe: []string{behind}})
	out := []any{}
	for got := false; d.err == nil; {
		response, err := d.stream.Recv()
		if err != nil {
			d.err = err
			break
		}
		d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce})
		isBehind := func(of *discovery.Resource) bool { return of.Name == behind }
		if response.TypeUrl == v3.EndpointType && slices.ContainsFunc(response.Resources, isBehind) {
			return out
		}
		if response.TypeUrl == kind && !got {
			got = true
			out = d.items(response)
		}
	}
	return out
}

// The next response, acknowledged; none if none comes in time.
func (d *delta) receiveWithin(limit time.Duration) *discovery.DeltaDiscoveryResponse {
	if d.responses == nil {
		d.responses = make(chan *discovery.DeltaDiscoveryResponse, 16)
		go func() {
			defer close(d.responses)
			for {
				response, err := d.stream.Recv()
				if err != nil {
					return
				}
				d.responses <- response
			}
		}()
	}
	select {
	case <-time.After(limit):
		return nil
	case response := <-d.responses:
		if response != nil {
			d.send(&discovery.DeltaDiscoveryRequest{TypeUrl: response.TypeUrl, ResponseNonce: response.Nonce})
		}
		return response
	}
}

func (d *delta) send(request *discovery.DeltaDiscoveryRequest) {
	if d.err == nil {
		request.Node, d.node = d.node, nil
		d.err = d.stream.Send(request)
	}
}

func (d *delta) items(response *discovery.DeltaDiscoveryResponse) []any {
	out := []any{}
	for _, of := range response.Resources {
		value, err := toJSON(of.Resource)
		d.err = errors.Join(d.err, err)
		if d.wrap {
			item := map[string]any{"name": of.Name, "resource": value}
			if isOwnService(item) {
				continue
			}
			if len(of.Aliases) > 0 {
				aliases := slices.Clone(of.Aliases)
				sort.Strings(aliases)
				item["aliases"] = aliases
			}
			value = item
		}
		out = append(out, value)
	}
	for _, name := range response.RemovedResources {
		if d.wrap {
			out = append(out, map[string]any{"name": name, "removed": true})
		}
	}
	return out
}

// Asks as a gRPC application does: listeners by name, the routes that they name, their clusters, the endpoints of these.
func askGRPC(ctx context.Context, service discovery.AggregatedDiscoveryServiceClient, node *core.Node, of proxy) (answers, error) {
	stream, err := service.StreamAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	responses := make(chan *discovery.DiscoveryResponse, 16)
	go func() {
		defer close(responses)
		for {
			response, err := stream.Recv()
			if err != nil {
				return
			}
			responses <- response
		}
	}()
	out := answers{}
	ask := func(name, kind string, names []string) []any {
		request := &discovery.DiscoveryRequest{Node: node, TypeUrl: kind, ResourceNames: names}
		err = errors.Join(err, stream.Send(request))
		out[name] = []any{}
		for late := time.After(silence); ; {
			select {
			case <-late:
				return out[name]
			case response := <-responses:
				if response == nil || response.TypeUrl != kind {
					continue
				}
				for _, of := range response.Resources {
					value, fault := toJSON(of)
					err = errors.Join(err, fault)
					out[name] = append(out[name], value)
				}
				request.ResponseNonce, request.VersionInfo = response.Nonce, response.VersionInfo
				err = errors.Join(err, stream.Send(request))
				return out[name]
			}
		}
	}
	listeners := ask("listeners", v3.ListenerType, of.Subscribe["listeners"])
	names := textsUnder(listeners, "routeConfigName")
	if len(names) == 0 {
		return out, err
	}
	routes := ask("routes", v3.RouteType, names)
	clusters := append(textsUnder(routes, "cluster"), of.Subscribe["clusters"]...)
	clusters = append(clusters, weighted(routes)...)
	sort.Strings(clusters)
	found := ask("clusters", v3.ClusterType, slices.Compact(clusters))
	if names := endpointNames(found); len(names) > 0 {
		ask("endpoints", v3.EndpointType, names)
	}
	return out, err
}

var marshal = protojson.MarshalOptions{}
