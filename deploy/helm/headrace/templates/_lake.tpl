{{/* The landing job's settings, with the folders of the volume unless the values name other places. */}}
{{- define "headrace.lake.settings" -}}
{{- $settings := deepCopy (default dict .Values.lake.settings) -}}
{{- $lake := default dict $settings.lake -}}
{{- if ne (empty $lake.path) (empty $lake.checkpoint) -}}
{{- fail "lake.settings.lake: path and checkpoint go together." -}}
{{- end -}}
{{- $_ := set $settings "lake" (mustMergeOverwrite (dict "path" "/var/lib/headrace/lake" "checkpoint" "/var/lib/headrace/checkpoint") $lake) -}}
{{- toJson $settings -}}
{{- end -}}

{{/* Whether tables or checkpoint lie on the chart's volume; empty: no. */}}
{{- define "headrace.lake.volume" -}}
{{- $lake := dig "lake" dict (default dict .Values.lake.settings) -}}
{{- range list "path" "checkpoint" -}}
{{- if hasPrefix "/var/lib/headrace/" (default "/var/lib/headrace/" (get $lake .)) -}}true{{- end -}}
{{- end -}}
{{- end -}}
