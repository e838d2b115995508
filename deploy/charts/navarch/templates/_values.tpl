{{/*
Makes of .Values what the other templates read: the defaults, over them profile, platform and compatibility, over these what
was set. Every template calls it first; only the first call does anything, since all share one context.

Besides it gives the context
  given     what was set, as it was set
  warnings  what of that has no effect, as texts
*/}}
{{- define "navarch.prepare" -}}
{{- if not (hasKey . "given") }}
  {{- $given := deepCopy (omit .Values "_defaults") }}
  {{- $_ := set . "given" $given }}
  {{- $set := include "navarch.flat" $given | fromJson }}
  {{- $values := deepCopy (get .Values "_defaults") }}
  {{- $layers := .Files.Get "files/profiles.yaml" | fromYaml }}
  {{- $global := $set.global | default dict }}
  {{- with coalesce $set.profile $global.profile }}
    {{- if not (hasKey $layers.profiles .) }}
      {{- fail (printf "profile: there is no %q; there are %s" . (keys $layers.profiles | sortAlpha | join ", ")) }}
    {{- end }}
    {{- $values = mustMergeOverwrite $values (get $layers.profiles .) }}
  {{- end }}
  {{- with $set.compatibilityVersion }}
    {{- if not (hasKey $layers.compatibility (toString .)) }}
      {{- fail (printf "compatibilityVersion: there is no %v; there are %s" . (keys $layers.compatibility | sortAlpha | join ", ")) }}
    {{- end }}
    {{- $values = mustMergeOverwrite $values (dict "env" (get $layers.compatibility (toString .))) }}
  {{- end }}
  {{- $platform := coalesce $set.platform $global.platform }}
  {{- with $platform }}
    {{- if not (hasKey $layers.platforms .) }}
      {{- fail (printf "platform: there is no %q; there are %s" . (keys $layers.platforms | sortAlpha | join ", ")) }}
    {{- end }}
    {{- $values = mustMergeOverwrite $values (get $layers.platforms .) }}
  {{- end }}
  {{- $unknown := include "navarch.unknown" (dict "prefix" "" "given" $set "known" (get .Values "_defaults")) }}
  {{- $values = mustMergeOverwrite $values $set }}
  {{- include "navarch.unset" (list $values $set) }}
  {{- if and $values.global.istioNamespace (ne $values.global.istioNamespace .Release.Namespace) }}
    {{- fail (printf "global.istioNamespace is %s, but the release is in %s: install it with --namespace %s" $values.global.istioNamespace .Release.Namespace $values.global.istioNamespace) }}
  {{- end }}
  {{- $_ := set $values.global "istioNamespace" .Release.Namespace }}
  {{- $_ := set $values.global "platform" ($platform | default "") }}
  {{- $_ := set . "warnings" list }}
  {{- range splitList "\n" $unknown }}
    {{- if . }}
      {{- $_ := set $ "warnings" (append $.warnings (printf "%s: no value of this chart, without effect" .)) }}
    {{- end }}
  {{- end }}
  {{- $_ := set . "Values" $values }}
  {{- include "navarch.images" . }}
  {{- range .Files.Get "files/without-effect.yaml" | fromYamlArray }}
    {{- $value := include "navarch.at" (dict "in" $set "path" .path) | fromJson }}
    {{- if and (hasKey $value "is") (not (has $value.is .as)) }}
      {{- $_ := set $ "warnings" (append $.warnings (printf "%s has no effect: %s" .path .because)) }}
    {{- end }}
  {{- end }}
  {{- if and $values.global.certSigners (not (include "navarch.kubernetesSigns" .)) }}
    {{- $_ := set . "warnings" (append .warnings "global.certSigners has no effect without env.EXTERNAL_CA or a signer in global.pilotCertProvider") }}
  {{- end }}
  {{- if and $values.global.remotePilotAddress (not $values.istiodRemote.enabled) }}
    {{- $_ := set . "warnings" (append .warnings "global.remotePilotAddress has no effect without istiodRemote.enabled") }}
  {{- end }}
  {{- include "navarch.checkValues" . }}
{{- end }}
{{- end -}}

{{/* Whether Kubernetes signs certificates. Empty is no. */}}
{{- define "navarch.kubernetesSigns" -}}
{{ if or (include "navarch.signs" (list "ISTIOD_RA_KUBERNETES_API" .)) (not (has .Values.global.pilotCertProvider (list "istiod" "custom" "none"))) }}yes{{ end }}
{{- end -}}

{{/* Whether a signer, by its name in EXTERNAL_CA, signs certificates of workloads of some namespace. Empty is no. */}}
{{- define "navarch.signs" -}}
{{- $signer := index . 0 }}
{{- $env := (index . 1).Values.env }}
{{- if or (eq (toString $env.EXTERNAL_CA) $signer) (contains (print "=" $signer) (nospace (toString $env.NAVARCH_NAMESPACE_SIGNERS))) }}yes{{ end }}
{{- end -}}

{{/* What was set, with that under `pilot` a level higher, as Istio's chart takes it; as JSON. */}}
{{- define "navarch.flat" -}}
{{- mustMergeOverwrite (omit (deepCopy .) "pilot") (deepCopy (.pilot | default dict)) | toJson }}
{{- end -}}

{{/* The paths of `given` that `known` has not, one a line. A map that is empty by default takes any key. */}}
{{- define "navarch.unknown" -}}
{{- $open := list "meshConfig" "resources" "seccompProfile" "global.defaultResources" "global.proxy.resources" "global.waypoint.resources" }}
{{- range $key, $value := .given }}
  {{- $path := print $.prefix $key }}
  {{- if not (hasKey $.known $key) }}
    {{- printf "%s\n" $path }}
  {{- else }}
    {{- $known := get $.known $key }}
    {{- if and (kindIs "map" $value) (kindIs "map" $known) $known (not (has $path $open)) }}
      {{- include "navarch.unknown" (dict "prefix" (print $path ".") "given" $value "known" $known) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* What is at `path` in the map `in`, as JSON {"is": …}, or {} if there is nothing. */}}
{{- define "navarch.at" -}}
{{- $found := true }}
{{- $here := .in }}
{{- range splitList "." .path }}
  {{- if and $found (kindIs "map" $here) (hasKey $here .) }}
    {{- $here = get $here . }}
  {{- else }}
    {{- $found = false }}
  {{- end }}
{{- end }}
{{- ternary (dict "is" $here) dict $found | toJson }}
{{- end -}}

{{/* Takes from the first map what is null in the second: so a default is unset. */}}
{{- define "navarch.unset" -}}
{{- $values := index . 0 }}
{{- range $key, $value := index . 1 }}
  {{- if kindIs "invalid" $value }}
    {{- $_ := unset $values $key }}
  {{- else if kindIs "map" $value }}
    {{- include "navarch.unset" (list (get $values $key) $value) }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Ends with a message where values contradict each other or cannot be obeyed. */}}
{{- define "navarch.checkValues" -}}
{{- $global := .Values.global }}
{{- if not (has $global.resourceScope (list "all" "cluster" "namespace")) }}
  {{- fail (printf "global.resourceScope is %q; write all, cluster or namespace" $global.resourceScope) }}
{{- end }}
{{- if eq $global.pilotCertProvider "kubernetes" }}
  {{- fail "global.pilotCertProvider=kubernetes names no signer: write k8s.io/SIGNER, or istiod" }}
{{- end }}
{{- if not (has $global.proxy.tracer (list "none" "zipkin" "lightstep" "datadog" "stackdriver")) }}
  {{- fail (printf "global.proxy.tracer is %q; write none, zipkin, lightstep, datadog or stackdriver" $global.proxy.tracer) }}
{{- end }}
{{- if and .Values.istiodRemote.enabled (not $global.remotePilotAddress) (not .Values.istiodRemote.injectionURL) }}
  {{- fail "istiodRemote.enabled needs global.remotePilotAddress, the address of the control plane, or istiodRemote.injectionURL" }}
{{- end }}
{{- if and $global.readerServiceAccount.namespace (not $global.readerServiceAccount.name) }}
  {{- fail "global.readerServiceAccount.namespace needs global.readerServiceAccount.name" }}
{{- end }}
{{- range $name, $url := dict "istiodRemote.injectionURL" .Values.istiodRemote.injectionURL "base.validationURL" .Values.base.validationURL }}
  {{- if and $url (not (hasPrefix "https://" $url)) }}
    {{- fail (printf "%s is %q: the API server calls webhooks over https:// alone" $name $url) }}
  {{- end }}
{{- end }}
{{- end -}}
