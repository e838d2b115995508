package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/config/schema/resource"
)

// The API server of one cluster.
type apiServer struct {
	url, certificate, kubeconfig string
	client                       *dynamic.DynamicClient
}

// Waits until the server answers, and hides its own Service.
func (s *apiServer) waitReady() error {
	return poll("not ready", func() error {
		config, err := s.writeKubeconfig()
		if err != nil {
			return err
		}
		config.QPS = -1
		transport, err := rest.HTTPClientFor(config)
		if err != nil {
			return err
		}
		if err := isFine(transport, s.url+"/readyz"); err != nil {
			return err
		}
		if s.client, err = dynamic.NewForConfig(config); err != nil {
			return err
		}
		hide := []byte(`{"metadata":{"annotations":{"networking.istio.io/exportTo":"~"}}}`)
		services := s.client.Resource(k8sschema.GroupVersionResource{Version: "v1", Resource: "services"})
		_, err = services.Namespace("default").Patch(context.Background(), "kubernetes", types.MergePatchType, hide, metav1.PatchOptions{})
		return err
	})
}

// The kinds that istiod knows.
func (s *apiServer) define() error {
	for _, file := range []string{
		"manifests/charts/base/files/crd-all.gen.yaml",
		"tests/integration/pilot/testdata/gateway-api-crd.yaml",
		"tests/integration/pilot/testdata/mcs-serviceexport-crd.yaml",
		"tests/integration/pilot/testdata/mcs-serviceimport-crd.yaml",
	} {
		objects, err := readObjects(filepath.Join(*istio, file))
		if err != nil {
			return err
		}
		for _, object := range objects {
			if object.GetKind() != "CustomResourceDefinition" {
				continue
			}
			definitions := s.client.Resource(k8sschema.GroupVersionResource{
				Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
			})
			if _, err := definitions.Create(context.Background(), object, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// An object, and the cluster that it is written to.
type placed struct {
	server *apiServer
	object *unstructured.Unstructured
}

// Writes the objects of all clusters: namespaces and nodes, then the others by their times, which the servers set anew in whole
// seconds. So those of one time are written at once, within one second, for istiod has rules that go by age.
func writeAll(objects []placed) error {
	byTime := map[string][]placed{}
	for _, of := range objects {
		at := ""
		if kind := of.object.GetKind(); kind != "Namespace" && kind != "Node" {
			at, _, _ = unstructured.NestedString(of.object.Object, "metadata", "creationTimestamp")
		}
		byTime[at] = append(byTime[at], of)
	}
	for _, at := range slices.Sorted(maps.Keys(byTime)) {
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		if err := writeAtOnce(byTime[at]); err != nil {
			return err
		}
	}
	return nil
}

func writeAtOnce(objects []placed) error {
	faults := make(chan error, len(objects))
	for _, of := range objects {
		go func() {
			err := of.server.put(of.object)
			if err != nil {
				err = fmt.Errorf("%s %s: %w", of.object.GetKind(), of.object.GetName(), err)
			}
			faults <- err
		}()
	}
	var err error
	for range objects {
		err = errors.Join(err, <-faults)
	}
	return err
}

// Writes an object, and its status behind it.
func (s *apiServer) put(object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	name, isInNamespace, err := resourceOf(kind)
	if err != nil {
		return err
	}
	var client dynamic.ResourceInterface = s.client.Resource(name)
	if isInNamespace {
		if object.GetNamespace() == "" {
			object.SetNamespace("default")
		}
		client = s.client.Resource(name).Namespace(object.GetNamespace())
	}
	for _, field := range []string{"creationTimestamp", "uid", "generation", "resourceVersion"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	status, hasStatus := object.Object["status"]
	delete(object.Object, "status")
	options := metav1.ApplyOptions{FieldManager: "recorder", Force: true}
	// A kind may have been defined just now.
	var rejected error
	err = poll("not taken", func() error {
		_, err := client.Apply(context.Background(), object.GetName(), object, options)
		if err != nil && !isPassing(err) {
			rejected = err
			return nil
		}
		return err
	})
	err = cmp.Or(rejected, err)
	if err != nil || !hasStatus {
		return err
	}
	object.Object = map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": kind.Kind, "status": status,
		"metadata": map[string]any{"name": object.GetName(), "namespace": object.GetNamespace()},
	}
	_, err = client.ApplyStatus(context.Background(), object.GetName(), object, options)
	return err
}

// The kinds of the MCS API, whose group and version are settings of istiod.
var mcsKinds = map[string]string{"ServiceExport": "serviceexports", "ServiceImport": "serviceimports"}

// What the API server calls a kind, and whether its objects are in namespaces.
func resourceOf(kind k8sschema.GroupVersionKind) (k8sschema.GroupVersionResource, bool, error) {
	if plural, ok := mcsKinds[kind.Kind]; ok && kind.Group == "multicluster.x-k8s.io" {
		return kind.GroupVersion().WithResource(plural), true, nil
	}
	schema, ok := collections.All.FindByGroupVersionAliasesKind(resource.FromKubernetesGVK(&kind))
	if !ok {
		return k8sschema.GroupVersionResource{}, false, fmt.Errorf("istiod does not read %s", kind)
	}
	return kind.GroupVersion().WithResource(schema.Plural()), !schema.IsClusterScoped(), nil
}

// Whether a server may take what it rejects as soon as it knows the kind.
func isPassing(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return !ok || slices.Contains([]int32{http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable}, status.Status().Code)
}

// Has istiod read another cluster.
func (s *apiServer) join(id, kubeconfig string) error {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		return err
	}
	return s.put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{
			"name": "istio-remote-secret-" + strings.ToLower(id), "namespace": "istio-system",
			"labels": map[string]any{"istio/multiCluster": "true"},
		},
		"stringData": map[string]any{id: string(text)},
	}})
}

// The objects of a file of documents.
func readObjects(file string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	// Istio's definitions of the MCS API are templates.
	written := strings.NewReplacer("{{ .Group }}", "multicluster.x-k8s.io", "{{ .Version }}", "v1alpha1").Replace("\n" + string(text))
	var out []*unstructured.Unstructured
	for _, document := range strings.Split(written, "\n---") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return nil, err
		}
		if object != nil {
			out = append(out, &unstructured.Unstructured{Object: object})
		}
	}
	return out, nil
}
