package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/config/schema/gvk"
	"istio.io/istio/pkg/config/schema/resource"
)

// The kinds whose statuses istiod writes.
var withStatus = []resource.Schema{
	collections.GatewayClass, collections.KubernetesGateway, collections.ListenerSet, collections.HTTPRoute, collections.GRPCRoute,
	collections.TCPRoute, collections.TLSRoute, collections.BackendTLSPolicy,
}

// Records the statuses that istiod writes in the primary cluster of a case.
func recordStatuses(folder string) error {
	w, err := startWorld(folder)
	if err != nil {
		return err
	}
	defer w.stop()
	program, _, err := w.startIstiod("PILOT_ENABLE_GATEWAY_API_STATUS=true", "PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER=true")
	if err != nil {
		return err
	}
	defer end(program)
	text, err := w.quietStatuses()
	if err != nil {
		return err
	}
	out := filepath.Join(folder, *outName)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "status.json"), text, 0o644)
}

// Reads until nothing changes: istiod leads, and so writes, some seconds after it has said that it is ready.
func (w *realWorld) quietStatuses() ([]byte, error) {
	const pause, calmPauses, limit = time.Second, 6, 60
	var before []byte
	calm := 0
	for range limit {
		got, written, err := w.statuses()
		if err != nil {
			return nil, err
		}
		if written && bytes.Equal(got, before) {
			calm++
		} else {
			calm = 0
		}
		if calm == calmPauses {
			return got, nil
		}
		before = got
		time.Sleep(pause)
	}
	return nil, fmt.Errorf("statuses do not come to rest")
}

// The statuses by kind, namespace and name, and whether istiod has written one of a GatewayClass.
func (w *realWorld) statuses() ([]byte, bool, error) {
	out, written := map[string]any{}, false
	for _, kind := range withStatus {
		list, err := w.primary.client.Resource(kind.GroupVersionResource()).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", kind.Kind(), err)
		}
		for _, object := range list.Items {
			status, ok := object.Object["status"]
			if !ok {
				continue
			}
			name := kind.Kind() + "/" + object.GetName()
			if object.GetNamespace() != "" {
				name = kind.Kind() + "/" + object.GetNamespace() + "/" + object.GetName()
			}
			out[name] = status
			written = written || kind.GroupVersionKind() == gvk.GatewayClass && isAccepted(&object)
		}
	}
	text, err := json.MarshalIndent(out, "", " ")
	return text, written, err
}

func isAccepted(object *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if of, ok := condition.(map[string]any); ok && of["type"] == "Accepted" && of["status"] == "True" {
			return true
		}
	}
	return false
}
