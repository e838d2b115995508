package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pkg/config"
	schemavalidator "istio.io/istio/pkg/config/crd"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/config/schema/resource"
	"istio.io/istio/pkg/kube"
)

// What one cluster holds: all objects, and among them Istio's own once more as istiod stores them.
type world struct {
	objects []runtime.Object
	configs []config.Config
	dynamic []*unstructured.Unstructured
}

// The definitions of Istio and of the Gateway API, which say what is rejected and what is defaulted.
var definitions *schemavalidator.Validator

func readDefinitions() error {
	var err error
	definitions, err = schemavalidator.NewValidatorFromFilesWithOptions([]string{
		filepath.Join(*istio, "manifests/charts/base/files/crd-all.gen.yaml"),
		filepath.Join(*istio, "tests/integration/pilot/testdata/gateway-api-crd.yaml"),
		filepath.Join(*istio, "tests/integration/pilot/testdata/gateway-api-inference-extension-crd.yaml"),
	}, schemavalidator.WithoutCRDValidation())
	return err
}

// Reads the objects of a file. With -prune those that are rejected are taken out of the file; else they are an error.
func readWorld(file string) (world, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return world{}, err
	}
	var out world
	var kept []string
	for _, document := range strings.Split("\n"+string(text), "\n---") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		err := out.add(document)
		switch {
		case err == nil:
			kept = append(kept, strings.TrimPrefix(document, "\n"))
		case !*prune:
			return world{}, fmt.Errorf("%w in\n%s", err, document)
		default:
			fmt.Fprintf(os.Stderr, "%s: rejected: %v\n", file, err)
		}
	}
	if *prune {
		return out, os.WriteFile(file, []byte(strings.TrimSpace(strings.Join(kept, "\n---\n"))+"\n"), 0o644)
	}
	return out, nil
}

func (w *world) add(document string) error {
	text, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(text); err != nil {
		return err
	}
	kind := object.GroupVersionKind()
	if kind.Kind == "CustomResourceDefinition" {
		return nil
	}
	known, isKnown := collections.All.FindByGroupVersionAliasesKind(resource.FromKubernetesGVK(&kind))
	if isKnown {
		if object.GetNamespace() == "" && !known.IsClusterScoped() {
			object.SetNamespace("default")
		}
	}
	if strings.Contains(kind.Group, ".istio.io") || strings.Contains(kind.Group, "gateway.networking.") || strings.Contains(kind.Group, "inference.") {
		if err := definitions.ValidateCustomResource(object); err != nil {
			return err
		}
	}
	if kind.Group == "multicluster.x-k8s.io" {
		w.dynamic = append(w.dynamic, object)
		return nil
	}
	if isKnown {
		// The API server converts to the version that is asked for; the fields of all versions are the same.
		object.SetAPIVersion(known.APIVersion())
	}
	typed, err := typedObject(object)
	if err != nil {
		return err
	}
	if strings.Contains(kind.Group, ".istio.io") && isKnown {
		cfg, err := istioConfig(known, object)
		if err != nil {
			return err
		}
		w.configs = append(w.configs, *cfg)
	}
	w.objects = append(w.objects, typed)
	return nil
}

func typedObject(object *unstructured.Unstructured) (runtime.Object, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	typed, _, err := kube.IstioCodec.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	defaultCore(typed)
	return typed, nil
}

func istioConfig(schema resource.Schema, object *unstructured.Unstructured) (*config.Config, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var of crd.IstioKind
	if err := json.Unmarshal(text, &of); err != nil {
		return nil, err
	}
	cfg, err := crd.ConvertObject(schema, &of, "cluster.local")
	if err != nil {
		return nil, err
	}
	cfg.UID, cfg.Generation = string(object.GetUID()), object.GetGeneration()
	_, err = schema.ValidateConfig(*cfg)
	return cfg, err
}

// What an API server defaults in its own kinds, as far as istiod reads it.
func defaultCore(object runtime.Object) {
	switch of := object.(type) {
	case *corev1.Service:
		defaultService(of)
	case *corev1.Pod:
		for _, containers := range [][]corev1.Container{of.Spec.InitContainers, of.Spec.Containers} {
			for i := range containers {
				for j := range containers[i].Ports {
					orElse(&containers[i].Ports[j].Protocol, corev1.ProtocolTCP)
				}
			}
		}
		orElse(&of.Spec.ServiceAccountName, "default")
		orElse(&of.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	case *discoveryv1.EndpointSlice:
		for i := range of.Ports {
			port := &of.Ports[i]
			if port.Name == nil {
				port.Name = new(string)
			}
			if port.Protocol == nil {
				protocol := corev1.ProtocolTCP
				port.Protocol = &protocol
			}
		}
	case *corev1.Secret:
		for key, value := range of.StringData {
			if of.Data == nil {
				of.Data = map[string][]byte{}
			}
			of.Data[key] = []byte(value)
		}
		of.StringData = nil
		orElse(&of.Type, corev1.SecretTypeOpaque)
	case *corev1.Namespace:
		if of.Labels == nil {
			of.Labels = map[string]string{}
		}
		of.Labels[corev1.LabelMetadataName] = of.Name
	}
}

func defaultService(of *corev1.Service) {
	orElse(&of.Spec.Type, corev1.ServiceTypeClusterIP)
	orElse(&of.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	for i := range of.Spec.Ports {
		port := &of.Spec.Ports[i]
		orElse(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == (intstr.IntOrString{}) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if of.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	if of.Spec.ClusterIP == "" && len(of.Spec.ClusterIPs) > 0 {
		of.Spec.ClusterIP = of.Spec.ClusterIPs[0]
	}
	if len(of.Spec.ClusterIPs) == 0 && of.Spec.ClusterIP != "" {
		of.Spec.ClusterIPs = []string{of.Spec.ClusterIP}
	}
	if of.Spec.InternalTrafficPolicy == nil {
		policy := corev1.ServiceInternalTrafficPolicyCluster
		of.Spec.InternalTrafficPolicy = &policy
	}
}

func orElse[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}
