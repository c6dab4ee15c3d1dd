{{/* The beginning of every object's name. */}}
{{- define "headrace.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels of an object of one part: (dict "root" $ "part" "forward"). */}}
{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: headrace
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What never changes of a part's labels. */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{/* The parts with health and metrics, as {"parts": […]}. */}}
{{- define "headrace.parts" -}}
{{- $parts := list }}
{{- range $name, $own := .Values.receivers }}
{{- if $own.enabled }}{{ $parts = append $parts $name }}{{ end }}
{{- end }}
{{- if ne .Values.lake.mode "none" }}{{ $parts = append $parts "lake" }}{{ end }}
{{- dict "parts" $parts | toJson -}}
{{- end -}}

{{/* An image of ours: (dict "root" $ "name" "tools"). */}}
{{- define "headrace.image" -}}
{{- $image := .root.Values.image -}}
{{- $image.registry -}}headrace-{{ .name }}:{{ default .root.Chart.AppVersion $image.tag }}
{{- end -}}

{{/* Name of the service account of the parts that ask Kubernetes for nothing. */}}
{{- define "headrace.account" -}}
{{ include "headrace.fullname" . }}
{{- end -}}
