package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"sort"
	"strings"

	"google.golang.org/protobuf/proto"
)

func splitN(text string, by rune, n int) []string { return strings.SplitN(text, string(by), n) }

// A message as a JSON value.
func toJSON(message proto.Message) (any, error) {
	text, err := marshal.Marshal(message)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	err = decoder.Decode(&value)
	return value, err
}

// The JSON of a list of resources in canonical form, as /canon.py of the recorded cases defines it.
func canonical(resources []any) ([]byte, error) {
	for i := range resources {
		resources[i] = canon(resources[i])
	}
	sortBy(resources, nameOf)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(resources)
	return out.Bytes(), err
}

func canon(value any) any {
	switch of := value.(type) {
	case []any:
		for i := range of {
			of[i] = canon(of[i])
		}
	case map[string]any:
		for key := range of {
			of[key] = canon(of[key])
		}
		sortField(of, "virtualHosts", nameOf)
		sortField(of, "domains", keyOf)
		sortField(of, "subjectAltNames", keyOf)
		if match, ok := of["match"].(map[string]any); ok {
			sortField(match, "headers", keyOf)
			sortField(match, "queryParameters", keyOf)
		}
		sortField(of, "lbEndpoints", keyOf)
		if groups, ok := of["endpoints"].([]any); ok && !slices.ContainsFunc(groups, isNoMap) {
			sortBy(groups, groupOf)
		}
		if _, ok := of["ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"]; ok {
			of["ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"] = "VERSION"
		}
	}
	return value
}

func isNoMap(value any) bool { _, ok := value.(map[string]any); return !ok }

func keyOf(value any) string { text, _ := json.Marshal(value); return string(text) }

func nameOf(value any) string {
	of, _ := value.(map[string]any)
	for _, field := range []string{"name", "clusterName"} {
		if name, _ := of[field].(string); name != "" {
			return name
		}
	}
	return keyOf(value)
}

// Locality and priority of a group of endpoints, then the rest.
func groupOf(value any) string {
	of := value.(map[string]any)
	locality := "{}"
	if set, ok := of["locality"]; ok {
		locality = keyOf(set)
	}
	priority := "0"
	if set, ok := of["priority"].(json.Number); ok {
		priority = set.String()
	}
	return locality + "\x00" + strings.Repeat("0", 10-len(priority)) + priority + "\x00" + keyOf(value)
}

func sortField(of map[string]any, field string, by func(any) string) {
	if list, ok := of[field].([]any); ok {
		sortBy(list, by)
	}
}

func sortBy(list []any, by func(any) string) {
	sort.SliceStable(list, func(i, j int) bool { return by(list[i]) < by(list[j]) })
}

// Calls a function for every object within a value.
func walk(value any, each func(map[string]any)) {
	switch of := value.(type) {
	case []any:
		for _, item := range of {
			walk(item, each)
		}
	case map[string]any:
		each(of)
		for _, item := range of {
			walk(item, each)
		}
	}
}

// The sorted names that a function finds within a value.
func gather(value any, find func(map[string]any) string) []string {
	var out []string
	walk(value, func(of map[string]any) {
		if name := find(of); name != "" {
			out = append(out, name)
		}
	})
	sort.Strings(out)
	return slices.Compact(out)
}

// The texts under a field.
func textsUnder(value any, field string) []string {
	return gather(value, func(of map[string]any) string { text, _ := of[field].(string); return text })
}

// The clusters among which routes split their requests.
func weighted(value any) []string {
	var out []string
	walk(value, func(of map[string]any) {
		if split, ok := of["weightedClusters"].(map[string]any); ok {
			for _, cluster := range split["clusters"].([]any) {
				out = append(out, nameOf(cluster))
			}
		}
	})
	return out
}

// The names under which clusters ask for endpoints.
func endpointNames(clusters []any) []string {
	return gather(clusters, func(of map[string]any) string {
		if of["type"] != "EDS" {
			return ""
		}
		eds, _ := of["edsClusterConfig"].(map[string]any)
		if name, _ := eds["serviceName"].(string); name != "" {
			return name
		}
		name, _ := of["name"].(string)
		return name
	})
}

// The secrets that come over ADS.
func adsSecrets(value any) []string {
	return gather(value, func(of map[string]any) string {
		config, _ := of["sdsConfig"].(map[string]any)
		if _, ok := config["ads"]; !ok {
			return ""
		}
		name, _ := of["name"].(string)
		return name
	})
}

// The filters whose configurations are asked for.
func discovered(value any) []string {
	return gather(value, func(of map[string]any) string {
		if _, ok := of["configDiscovery"]; !ok {
			return ""
		}
		name, _ := of["name"].(string)
		return name
	})
}
