{{/* Labels of all objects. */}}
{{- define "base.labels" -}}
release: {{ .Release.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/name: navarch
app.kubernetes.io/part-of: navarch
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}
{{/* The namespace of the control planes. */}}
{{- define "base.namespace" -}}
{{ .Values.global.istioNamespace | default .Release.Namespace }}
{{- end -}}
