{{/* A number with a unit as a number; empty if it has no such form: (dict "text" "256MiB" "units" {"mib": 1048576}). */}}
{{- define "headrace.number" -}}
{{- $text := trim (ternary .text (toJson .text) (kindIs "string" .text)) -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?" $text -}}
{{- $unit := trim (trimPrefix $number $text) -}}
{{- if and $number (hasKey .units $unit) -}}{{- mulf (float64 $number) (float64 (get .units $unit)) -}}{{- end -}}
{{- end -}}

{{/* A setting of `limits`, or its default, as a number: (dict "root" $ "settings" {…} "kind" "bytes" "name" "frame_bytes"). */}}
{{- define "headrace.limit" -}}
{{- $known := .root.Files.Get "files/settings.json" | fromJson -}}
{{- $text := get (default dict (get (default dict .settings) "limits")) .name | default (get $known.limits .name) -}}
{{- include "headrace.number" (dict "text" (ternary (lower (toString $text)) $text (kindIs "string" $text)) "units" (set (get $known .kind) "" 1)) -}}
{{- end -}}

{{/* An amount of memory or of processors as Kubernetes writes it, as a number. */}}
{{- define "headrace.amount" -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- include "headrace.number" (dict "text" . "units" $units) -}}
{{- end -}}

{{/* Bytes as Java writes them, as a number. */}}
{{- define "headrace.heap" -}}
{{- include "headrace.number" (dict "text" (lower (toString .)) "units" (dict "" 1 "k" 1024 "m" 1048576 "g" 1073741824 "t" 1099511627776)) -}}
{{- end -}}
