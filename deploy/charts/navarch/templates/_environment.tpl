{{/* The environment of the control plane as JSON: what values stand for, and over it .Values.env. */}}
{{- define "navarch.env" -}}
{{- $global := .Values.global }}
{{- $env := dict
  "REVISION" (include "navarch.revision" .)
  "CLUSTER_ID" ($global.multiCluster.clusterName | default "Kubernetes")
  "PILOT_CERT_PROVIDER" $global.pilotCertProvider
  "PILOT_ENABLE_ANALYSIS" (toString $global.istiod.enableAnalysis)
  "KUBECONFIG" "/var/run/secrets/remote/config"
  "CA_TRUSTED_NODE_ACCOUNTS" (printf "%s/%s" (.Values.trustedZtunnelNamespace | default .Release.Namespace) (.Values.trustedZtunnelName | default "ztunnel"))
}}
{{- if ne (toString .Values.traceSampling) "" }}
  {{- $_ := set $env "PILOT_TRACE_SAMPLING" (include "navarch.text" .Values.traceSampling) }}
{{- end }}
{{- if .Values.taint.enabled }}
  {{- $_ := set $env "PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS" "true" }}
  {{- $_ := set $env "PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME" .Values.taint.name }}
{{- end }}
{{- if $global.istiod.planWarnings }}
  {{- $_ := set $env "NAVARCH_PLAN_WARNINGS" "true" }}
{{- end }}
{{- if $global.externalIstiod }}
  {{- $_ := set $env "EXTERNAL_ISTIOD" "true" }}
{{- end }}
{{- with $global.trustBundleName }}
  {{- $_ := set $env "PILOT_CA_CERT_CONFIGMAP" . }}
{{- end }}
{{- with .Values.crlConfigMapName }}
  {{- $_ := set $env "PILOT_CRL_CONFIGMAP" . }}
{{- end }}
{{- with $global.platform }}
  {{- $_ := set $env "PLATFORM" . }}
{{- end }}
{{- range $name, $value := .Values.env }}
  {{- $_ := set $env $name (include "navarch.text" $value) }}
{{- end }}
{{- toJson $env }}
{{- end -}}
