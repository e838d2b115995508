{{/* A name with the revision behind it: `istiod`, `istiod-canary`. */}}
{{- define "navarch.name" -}}
{{- $name := index . 0 }}{{ $values := (index . 1).Values -}}
{{ $name }}{{ with $values.revision }}-{{ . }}{{ end }}
{{- end -}}

{{/* The value of istio.io/rev. */}}
{{- define "navarch.revision" -}}
{{ .Values.revision | default "default" }}
{{- end -}}

{{/* Labels of all objects. istioctl goes by some of them. */}}
{{- define "navarch.labels" -}}
istio.io/rev: {{ include "navarch.revision" . | quote }}
install.operator.istio.io/owning-resource: {{ .Values.ownerName | default "unknown" | quote }}
operator.istio.io/component: Pilot
release: {{ .Release.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/name: navarch
app.kubernetes.io/part-of: navarch
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{/* What tells the pods of this revision from others: those of istiod's chart, so that either chart can take the other's place. */}}
{{- define "navarch.selector" -}}
{{- if .Values.revision -}}
app: istiod
istio.io/rev: {{ .Values.revision | quote }}
{{- else -}}
istio: pilot
{{- end }}
{{- end -}}

{{/* Whether objects with a namespace are wanted, those without one, a control plane here, and its rights. Empty is no. */}}
{{- define "navarch.namespaced" -}}
{{ if ne .Values.global.resourceScope "cluster" }}yes{{ end }}
{{- end -}}
{{- define "navarch.clusterWide" -}}
{{ if ne .Values.global.resourceScope "namespace" }}yes{{ end }}
{{- end -}}
{{- define "navarch.runsHere" -}}
{{ if or (not .Values.istiodRemote.enabled) .Values.istiodRemote.enabledLocalInjectorIstiod }}yes{{ end }}
{{- end -}}
{{- define "navarch.isConfiguredHere" -}}
{{ if or (include "navarch.runsHere" .) .Values.global.configCluster }}yes{{ end }}
{{- end -}}

{{/* Requests and limits, without what is set to nothing. */}}
{{- define "navarch.resources" -}}
{{- $kept := dict }}
{{- range $part := list "limits" "requests" }}
  {{- $quantities := dict }}
  {{- range $name, $quantity := get $ $part | default dict }}
    {{- if $quantity }}{{ $_ := set $quantities $name (toString $quantity) }}{{ end }}
  {{- end }}
  {{- if $quantities }}{{ $_ := set $kept $part $quantities }}{{ end }}
{{- end }}
{{- toYaml $kept }}
{{- end -}}

{{/* A value as a text; large numbers as they were written. */}}
{{- define "navarch.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ printf "%.0f" . }}{{ else }}{{ toString . }}{{ end }}
{{- end -}}

{{/*
Decides which images are run. Istio's own registry has none of Navarch: where global.hub names it, proxies are Istio's, and the
control plane is the chart's.
*/}}
{{- define "navarch.images" -}}
{{- $global := .Values.global }}
{{- $istios := regexMatch "^(docker\\.io/istio|registry\\.istio\\.io/|gcr\\.io/istio-|quay\\.io/istio)" (toString $global.hub) }}
{{- $proxy := ternary "proxyv2" "navarch-proxy" $istios }}
{{- $_ := set $global.proxy "image" ($global.proxy.image | default $proxy) }}
{{- $_ := set $global.proxy_init "image" ($global.proxy_init.image | default $global.proxy.image) }}
{{- $hub := .Values.hub | default (ternary "ghcr.io/navarch" $global.hub $istios) }}
{{- $tag := .Values.tag | default (ternary .Chart.AppVersion $global.tag $istios) }}
{{- $variant := .Values.variant | default $global.variant }}
{{- /* Values that were copied from Istio's chart say pilot. */}}
{{- $name := ternary "navarch" .Values.image (and $istios (not .Values.hub) (eq .Values.image "pilot")) }}
{{- $image := printf "%v/%s:%s" $hub $name (include "navarch.text" $tag) }}
{{- if contains "/" .Values.image }}
  {{- $image = .Values.image }}
{{- else if and $variant (ne $name "navarch") }}
  {{- $image = printf "%s-%s" $image $variant }}
{{- else if and $variant (ne $variant "distroless") }}
  {{- $_ := set . "warnings" (append .warnings (printf "variant %s has no effect on the control plane: Navarch's image has one flavour, without a shell" $variant)) }}
{{- end }}
{{- $_ := set . "image" $image }}
{{- if and $istios (not .Values.hub) (not (contains "/" .Values.image)) }}
  {{- $_ := set . "warnings" (append .warnings (printf "global.hub is Istio's: proxies run %v/%s:%s, the control plane %s" $global.hub $global.proxy.image (include "navarch.text" $global.tag) $image)) }}
{{- end }}
{{- $flavour := $global.proxy.variant | default $global.variant }}
{{- if and $flavour (contains "navarch-proxy" $global.proxy.image) }}
  {{- $_ := set . "warnings" (append .warnings (printf "variant %s has no effect on proxies: Navarch's image has one flavour" $flavour)) }}
  {{- $flavour = "" }}
{{- end }}
{{- $_ := set . "flavour" $flavour }}
{{- $_ := set $global "variant" $flavour }}
{{- end -}}

{{/*
Whether an object, as `lookup` finds it, is there and not this release's: all revisions share some objects, and Istio's base chart
has them too. Empty is no.
*/}}
{{- define "navarch.isOfAnother" -}}
{{- $ := index . 0 }}{{ $object := index . 1 }}
{{- if $object }}
  {{- $annotations := $object.metadata.annotations | default dict }}
  {{- $owner := printf "%s/%s" (get $annotations "meta.helm.sh/release-namespace") (get $annotations "meta.helm.sh/release-name") }}
  {{- if ne $owner (printf "%s/%s" $.Release.Namespace $.Release.Name) }}yes{{ end }}
{{- end }}
{{- end -}}
