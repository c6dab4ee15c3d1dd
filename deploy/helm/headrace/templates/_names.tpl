{{/* The beginning of every object's name: at most 40 characters, of which a hash keeps two long names apart. */}}
{{- define "headrace.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $whole := default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name)) .Values.fullnameOverride -}}
{{- if gt (len $whole) 40 -}}
{{- $whole = printf "%s-%s" ($whole | trunc 31 | trimSuffix "-") (sha256sum $whole | trunc 8) -}}
{{- end -}}
{{- $whole -}}
{{- end -}}

{{/* Labels of an object of one part: (dict "root" $ "part" "forward" "more" …), of which `more` wins over `labels`. */}}
{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: headrace
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with merge dict (default dict .more) (default dict .root.Values.labels) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels of a part that never change. */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{/* The receivers that run, as {"list": [{"name", "own", "values"}]}: `own` as given, `values` with what holds for all. */}}
{{- define "headrace.receivers" -}}
{{- $list := list -}}
{{- range $name, $own := .Values.receivers -}}
{{- if $own.enabled -}}
{{- $values := mustMergeOverwrite (deepCopy $.Values.podDefaults) (deepCopy $.Values.receiverDefaults) (deepCopy $own) -}}
{{- range list $own $values }}{{ $_ := set . "settings" (default dict .settings) }}{{ end -}}
{{- $list = append $list (dict "name" $name "own" $own "values" $values) -}}
{{- end -}}
{{- end -}}
{{- dict "list" $list | toJson -}}
{{- end -}}

{{/* The parts with health and metrics, as {"parts": […]}. */}}
{{- define "headrace.parts" -}}
{{- $parts := list }}
{{- range (include "headrace.receivers" . | fromJson).list }}{{ $parts = append $parts .name }}{{ end }}
{{- if ne .Values.lake.mode "none" }}{{ $parts = append $parts "lake" }}{{ end }}
{{- dict "parts" $parts | toJson -}}
{{- end -}}

{{/* An image of ours: (dict "root" $ "name" "tools" "own" …); `own`: the part's own, whole image, if it has one. */}}
{{- define "headrace.image" -}}
{{- $image := .root.Values.image -}}
{{- $registry := dig "imageRegistry" "" (default dict .root.Values.global) -}}
{{- $registry = default (ternary (printf "%s/" (trimSuffix "/" $registry)) "" (not (empty $registry))) $image.registry -}}
{{- default (printf "%sheadrace-%s:%s" $registry .name (default .root.Chart.AppVersion $image.tag)) .own -}}
{{- end -}}

{{/* Name of the service account of the parts that ask Kubernetes for nothing. */}}
{{- define "headrace.account" -}}
{{- $account := .Values.serviceAccount -}}
{{- default (ternary (include "headrace.fullname" .) "default" $account.create) $account.name -}}
{{- end -}}

{{/* The same of the landing job. */}}
{{- define "headrace.lake.account" -}}
{{- $account := .Values.lake.serviceAccount -}}
{{- default (ternary (printf "%s-lake" (include "headrace.fullname" .)) "default" $account.create) $account.name -}}
{{- end -}}

{{/* The families of addresses of a Service. */}}
{{- define "headrace.families" -}}
{{- with .Values.network.ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.network.ipFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Variables with which a part also listens where there is IPv6: (dict "root" $ "sections" (list "OPS")). */}}
{{- define "headrace.listen.env" -}}
{{- if has "IPv6" .root.Values.network.ipFamilies }}
{{- range .sections }}
- name: HEADRACE_{{ . }}__HOST
  value: "::"
{{- end }}
{{- end }}
{{- end -}}
