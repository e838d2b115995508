{{/* The name of all objects. */}}
{{- define "gateway.name" -}}
{{ .Values.name | default .Release.Name }}
{{- end -}}

{{/* What selects the pods. */}}
{{- define "gateway.selector" -}}
{{- $name := include "gateway.name" . }}
{{- $labels := .Values.labels | default dict -}}
app: {{ $labels.app | default $name | quote }}
istio: {{ $labels.istio | default (trimPrefix "istio-" $name) | quote }}
{{- end -}}

{{/* Labels of all objects. */}}
{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
{{- range $key, $value := omit (.Values.labels | default dict) "app" "istio" }}
{{ $key }}: {{ $value | quote }}
{{- end }}
release: {{ .Release.Name | quote }}
app.kubernetes.io/name: {{ include "gateway.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/part-of: navarch
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{/* The metadata of an object, of the context and its name. */}}
{{- define "gateway.metadata" -}}
{{- $ := index . 0 -}}
name: {{ index . 1 }}
namespace: {{ $.Release.Namespace }}
labels:
  {{- include "gateway.labels" $ | nindent 2 }}
{{- with $.Values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The ServiceAccount of the pods. */}}
{{- define "gateway.account" -}}
{{ .Values.serviceAccount.name | default (ternary (include "gateway.name" .) "default" .Values.serviceAccount.create) }}
{{- end -}}

{{/* Requests and limits, without what is set to nothing. */}}
{{- define "gateway.resources" -}}
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

{{/* The ports of the Service, as YAML. */}}
{{- define "gateway.ports" -}}
{{- if .Values.networkGateway }}
{{- $ports := list }}
{{- range $name := list "status-port" "tls" "tls-istiod" "tls-webhook" }}
  {{- $port := get $.Values.networkGatewayPorts $name | required (printf "networkGateway needs networkGatewayPorts.%s" $name) }}
  {{- $ports = append $ports (dict "name" $name "port" $port.port "targetPort" ($port.targetPort | default $port.port) "protocol" ($port.protocol | default "TCP")) }}
{{- end }}
{{- toYaml $ports }}
{{- else }}
{{- if not .Values.service.ports }}
  {{- fail "service.ports is empty: name a port, or set service.type=None" }}
{{- end }}
{{- toYaml .Values.service.ports }}
{{- end }}
{{- end -}}
