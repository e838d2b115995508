package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/runtime"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	k8stesting "k8s.io/client-go/testing"

	"istio.io/istio/pilot/pkg/serviceregistry/aggregate"
	"istio.io/istio/pilot/test/xds"
	"istio.io/istio/pkg/cluster"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/mesh/meshwatcher"
	"istio.io/istio/pkg/config/schema/gvr"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/kube/kclient/clienttest"
	"istio.io/istio/pkg/security"
	"istio.io/istio/pkg/test"
)

// The kinds whose definitions every cluster has.
var defined = []k8sschema.GroupVersionResource{
	gvr.GatewayClass, gvr.KubernetesGateway, gvr.HTTPRoute, gvr.GRPCRoute, gvr.TCPRoute, gvr.TLSRoute, gvr.ReferenceGrant,
	gvr.BackendTLSPolicy, gvr.ListenerSet, gvr.InferencePool, gvr.XBackendTrafficPolicy, gvr.ServiceExport, gvr.ServiceImport,
	gvr.AuthorizationPolicy, gvr.PeerAuthentication, gvr.RequestAuthentication, gvr.WorkloadEntry, gvr.ServiceEntry,
	gvr.Telemetry, gvr.WasmPlugin, gvr.TrafficExtension, gvr.EnvoyFilter, gvr.DestinationRule, gvr.VirtualService,
}

// istiod reads some kinds of the Gateway API only where their definitions come from a late enough release.
const bundleKey, bundleVersion = "gateway.networking.k8s.io/bundle-version", "v1.6.0"

// Starts istiod on the world of a case.
func start(t test.Failer, folder string) (*xds.FakeDiscoveryServer, error) {
	main, err := readWorld(filepath.Join(folder, "input.yaml"))
	if err != nil {
		return nil, err
	}
	local := cluster.ID(envOr("CLUSTER_ID", "Kubernetes"))
	worlds := map[cluster.ID]world{local: main}
	files, _ := filepath.Glob(filepath.Join(folder, "input.*.yaml"))
	for _, file := range files {
		remote, err := readWorld(file)
		if err != nil {
			return nil, err
		}
		id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "input."), ".yaml")
		worlds[cluster.ID(id)] = remote
	}
	options := xds.FakeOptions{
		DefaultClusterName:         local,
		KubernetesVersion:          "36",
		Configs:                    main.configs,
		DisableSecretAuthorization: true,
		KubernetesObjectsByCluster: map[cluster.ID][]runtime.Object{},
	}
	for id, of := range worlds {
		options.KubernetesObjectsByCluster[id] = of.objects
	}
	options.KubeClientModifier = func(c kube.Client) {
		for _, kind := range defined {
			clienttest.MakeCRDWithAnnotations(t, c, kind, map[string]string{bundleKey: bundleVersion})
		}
		// The fake server writes some of them once more, without that.
		c.Metadata().(*metadatafake.FakeMetadataClient).PrependReactor("update", gvr.CustomResourceDefinition.Resource,
			func(action k8stesting.Action) (bool, runtime.Object, error) {
				return true, action.(k8stesting.UpdateAction).GetObject(), nil
			})
	}
	if text, err := os.ReadFile(filepath.Join(folder, "mesh.yaml")); err == nil {
		if options.MeshConfig, err = mesh.ApplyMeshConfig(string(text), mesh.DefaultMeshConfig()); err != nil {
			return nil, err
		}
	}
	empty := mesh.EmptyMeshNetworks()
	networks := &empty
	if text, err := os.ReadFile(filepath.Join(folder, "networks.yaml")); err == nil {
		parsed, err := mesh.ParseMeshNetworks(string(text))
		if err != nil {
			return nil, err
		}
		networks = parsed
	}
	options.NetworksWatcher = meshwatcher.NewFixedNetworksWatcher(networks)
	server := xds.NewFakeDiscoveryServer(t, options)
	// The fake server adds the clusters in any order; istiod has its own cluster first.
	for range attempts {
		if isFirst(server, local) {
			break
		}
		server = xds.NewFakeDiscoveryServer(t, options)
	}
	security.AuthPlaintext = true
	server.Discovery.Authenticators = []security.Authenticator{named{}}
	// What DNS clusters know of other networks' gateways is stale until the gateways are read a second time without a change.
	server.Env().NetworkManager.NameCache.NotifyGatewayHandlers()
	return server, settle(server)
}

// With two clusters one attempt of two is right.
const attempts = 20

// Whether istiod sees a cluster's services before those of all others.
func isFirst(server *xds.FakeDiscoveryServer, id cluster.ID) bool {
	registries := server.Env().ServiceDiscovery.(*aggregate.Controller).GetRegistries()
	return registries[0].Cluster() == id
}

func envOr(name, value string) string {
	if set := os.Getenv(name); set != "" {
		return set
	}
	return value
}

// Waits until istiod has worked off every event and no new ones come.
func settle(server *xds.FakeDiscoveryServer) error {
	const pause, calmPauses, limit = 20 * time.Millisecond, 5, 1000
	before, calm := int64(-1), 0
	for range limit {
		inbound, committed := server.Discovery.InboundUpdates.Load(), server.Discovery.CommittedUpdates.Load()
		if inbound == committed && inbound == before {
			calm++
		} else {
			calm = 0
		}
		if calm == calmPauses {
			return nil
		}
		before = inbound
		time.Sleep(pause)
	}
	return errors.New("istiod does not come to rest")
}

// Takes a caller for the identity that it names.
type named struct{}

const identityKey = "identity"

func (named) Authenticate(ctx security.AuthContext) (*security.Caller, error) {
	names := metadata.ValueFromIncomingContext(ctx.GrpcContext, identityKey)
	if len(names) == 0 {
		return nil, fmt.Errorf("no %s", identityKey)
	}
	return &security.Caller{AuthSource: security.AuthSourceClientCertificate, Identities: names}, nil
}

func (named) AuthenticatorType() string { return "named" }

func connect(server *xds.FakeDiscoveryServer) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///istiod", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return server.BufListener.Dial() }))
}
