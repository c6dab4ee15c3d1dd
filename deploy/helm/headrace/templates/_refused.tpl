{{/* Refuses what would be lost, counted twice or do nothing without a word, and sizes with which a pod does not start. What the API
server refuses by itself, and settings that a process refuses (status 78), are left to them. Each sentence begins with the value. */}}
{{- define "headrace.refused" -}}
{{- $root := . -}}
{{- if not (regexMatch "^[a-z]" (include "headrace.fullname" .)) -}}
{{- fail (printf "release name: %s begins with a digit, and names of Services must not: set fullnameOverride." .Release.Name) -}}
{{- end -}}
{{- $_ := include "headrace.kafka.env" . -}}
{{- include "headrace.refused.sizes" (dict "root" . "where" "receiverDefaults" "values" .Values.receiverDefaults) -}}
{{- range $receiver := (include "headrace.receivers" . | fromJson).list -}}
{{- $_ := set $receiver "root" $root -}}
{{- include "headrace.refused.receiver" $receiver -}}
{{- end -}}
{{- if .Values.kafka.enabled -}}
{{- if gt (dig "topics" "replication" 1 (default dict .Values.topics.settings) | int) 1 -}}
{{- fail "topics.settings.topics.replication: the development broker is one: set kafka.enabled to false to use your own brokers." -}}
{{- end -}}
{{- include "headrace.refused.heap" (dict "where" "kafka.development" "heap" .Values.kafka.development.heap "name" "heap" "resources" .Values.kafka.development.resources "beside" 0.25) -}}
{{- end -}}
{{- include "headrace.refused.lake" . -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.egress (not .Values.kafka.enabled) (not .Values.networkPolicy.kafka) -}}
{{- fail "networkPolicy.kafka: with egress true and kafka.enabled false, no pod reaches your brokers: give a rule for them." -}}
{{- end -}}
{{- $interval := include "headrace.number" (dict "text" .Values.monitoring.interval "units" (dict "ms" 0.001 "s" 1 "m" 60 "h" 3600)) -}}
{{- if and .Values.monitoring.rules (gt (float64 $interval) 60.0) -}}
{{- fail (printf "monitoring.interval: %s is too long for monitoring.rules, which look at what grew within two minutes: at most 1m." .Values.monitoring.interval) -}}
{{- end -}}
{{- end -}}

{{/* A JVM's heap must leave room below the memory limit: (dict "where" "lake" "name" "settings.lake.driver_memory" "heap" "1g" "beside" 1). */}}
{{- define "headrace.refused.heap" -}}
{{- $limit := include "headrace.amount" (dig "limits" "memory" "" (default dict .resources)) -}}
{{- $heap := include "headrace.heap" .heap -}}
{{- if and $limit $heap (gt (addf (float64 $heap) (mulf 1073741824 .beside)) (float64 $limit)) -}}
{{- fail (printf "%s.%s: a heap of %s and %v GiB beside it are above %s.resources.limits.memory, %v." .where .name .heap .beside .where .resources.limits.memory) -}}
{{- end -}}
{{- end -}}

{{/* The budgets of a receiver must fit into its memory and into one another, as the process asks: (dict "root" $ "where" … "values" …). */}}
{{- define "headrace.refused.sizes" -}}
{{- $sizes := dict -}}
{{- range $name := list "process_budget" "connection_budget" "frame_bytes" "inflated_bytes" -}}
{{- $_ := set $sizes $name (include "headrace.limit" (dict "root" $.root "settings" $.values.settings "kind" "bytes" "name" $name) | default "0" | float64) -}}
{{- end -}}
{{- $memory := include "headrace.amount" (dig "limits" "memory" "" (default dict .values.resources)) -}}
{{- if and $memory (lt (float64 $memory) (addf (mulf 2 $sizes.process_budget) 134217728)) -}}
{{- fail (printf "%s.resources.limits.memory: %v is below twice limits.process_budget and 128 MiB." .where .values.resources.limits.memory) -}}
{{- end -}}
{{- if lt $sizes.process_budget (mulf 2 $sizes.connection_budget) -}}
{{- fail (printf "%s.settings.limits.process_budget: it is below twice limits.connection_budget." .where) -}}
{{- end -}}
{{- if lt $sizes.connection_budget (addf $sizes.frame_bytes $sizes.inflated_bytes) -}}
{{- fail (printf "%s.settings.limits.connection_budget: it is below limits.frame_bytes and limits.inflated_bytes." .where) -}}
{{- end -}}
{{- end -}}

{{- define "headrace.refused.receiver" -}}
{{- $where := printf "receivers.%s" .name -}}
{{- $_ := include "headrace.receiver.certificate" . -}}
{{- include "headrace.refused.sizes" (dict "root" .root "where" $where "values" .values) -}}
{{- if and (or (include "headrace.receiver.stateful" .) (eq .name "segment")) (dig "autoscaling" "enabled" false .own) -}}
{{- fail (printf "%s.autoscaling.enabled: each replica consumes every device, or one owns all segments: more of them make no load less." $where) -}}
{{- end -}}
{{- end -}}

{{- define "headrace.refused.lake" -}}
{{- $lake := .Values.lake -}}
{{- if ne $lake.mode "none" -}}
{{- $settings := get (include "headrace.lake.settings" . | fromJson) "lake" -}}
{{- $mounts := list "/var/lib/headrace" -}}
{{- range default .Values.podDefaults.extraVolumeMounts $lake.extraVolumeMounts }}{{ $mounts = append $mounts (trimSuffix "/" .mountPath) }}{{ end -}}
{{- range $name := list "path" "checkpoint" -}}
{{- $place := get $settings $name | toString -}}
{{- if not (contains "://" $place) -}}
{{- $below := false -}}
{{- range $mounts }}{{ if hasPrefix (printf "%s/" .) $place }}{{ $below = true }}{{ end }}{{ end -}}
{{- if not $below -}}
{{- fail (printf "lake.settings.lake.%s: %s is on no volume: the chart's is /var/lib/headrace, and lake.extraVolumeMounts may name others." $name $place) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "headrace.refused.heap" (dict "where" "lake" "name" "settings.lake.driver_memory" "heap" (default "1g" $settings.driver_memory) "resources" $lake.resources "beside" 1.0) -}}
{{- end -}}
{{- end -}}
