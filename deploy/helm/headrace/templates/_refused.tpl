{{/* Refuses what cannot work. Each sentence begins with the value. Quantities that are none are left to the schema. */}}
{{- define "headrace.refused" -}}
{{- $root := . -}}
{{- if not (regexMatch "^[a-z]" (include "headrace.fullname" .)) -}}
{{- fail (printf "release name: %s begins with a digit, and names of Services must not: set fullnameOverride." .Release.Name) -}}
{{- end -}}
{{- $_ := include "headrace.kafka.env" . -}}
{{- include "headrace.refused.image" (dict "where" "image.tag" "image" (printf "headrace:%s" (default .Chart.AppVersion .Values.image.tag))) -}}
{{- range $name, $part := dict "topics" .Values.topics "lake" .Values.lake "live" .Values.live "test" .Values.test "kafka.development" .Values.kafka.development -}}
{{- with $part.image }}{{ include "headrace.refused.image" (dict "where" (printf "%s.image" $name) "image" .) }}{{ end -}}
{{- include "headrace.refused.memory" (dict "where" $name "resources" $part.resources) -}}
{{- end -}}
{{- range $receiver := (include "headrace.receivers" . | fromJson).list -}}
{{- $_ := set $receiver "root" $root -}}
{{- include "headrace.refused.receiver" $receiver -}}
{{- end -}}
{{- if .Values.kafka.enabled -}}
{{- include "headrace.refused.heap" (dict "where" "kafka.development" "heap" .Values.kafka.development.heap "name" "heap" "resources" .Values.kafka.development.resources "beside" 0.25) -}}
{{- end -}}
{{- include "headrace.refused.lake" . -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.egress (not .Values.kafka.enabled) (not .Values.networkPolicy.kafka) -}}
{{- fail "networkPolicy.kafka: with egress true and kafka.enabled false, no pod reaches your brokers: give a rule for them." -}}
{{- end -}}
{{- $alerts := list -}}
{{- range (.Files.Get "files/alerts.yml" | fromYaml).groups }}{{ range .rules }}{{ $alerts = append $alerts .alert }}{{ end }}{{ end -}}
{{- range .Values.monitoring.disabledRules -}}
{{- if not (has . $alerts) }}{{ fail (printf "monitoring.disabledRules: there is no alert %s." .) }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "headrace.refused.image" -}}
{{- if or (hasSuffix ":latest" .image) (not (or (contains "@sha256:" .image) (regexMatch ":[^/]+$" .image))) -}}
{{- fail (printf "%s: %s names no version: give a tag that never changes, other than latest, or a digest." .where .image) -}}
{{- end -}}
{{- end -}}

{{- define "headrace.refused.memory" -}}
{{- $limit := include "headrace.memory" (dig "limits" "memory" "" (default dict .resources)) -}}
{{- $request := include "headrace.memory" (dig "requests" "memory" "" (default dict .resources)) -}}
{{- if and $limit $request (gt (float64 $request) (float64 $limit)) -}}
{{- fail (printf "%s.resources.requests.memory: %v is above the limit, %v." .where .resources.requests.memory .resources.limits.memory) -}}
{{- end -}}
{{- end -}}

{{/* A JVM's heap must leave room below the memory limit: (dict "where" "lake" "name" "settings.lake.driver_memory" "heap" "1g" "beside" 1). */}}
{{- define "headrace.refused.heap" -}}
{{- $limit := include "headrace.memory" (dig "limits" "memory" "" (default dict .resources)) -}}
{{- $heap := include "headrace.heap" .heap -}}
{{- if and $limit $heap (gt (addf (float64 $heap) (mulf 1073741824 .beside)) (float64 $limit)) -}}
{{- fail (printf "%s.%s: a heap of %s and %v GiB beside it are above %s.resources.limits.memory, %v." .where .name .heap .beside .where .resources.limits.memory) -}}
{{- end -}}
{{- end -}}

{{- define "headrace.refused.receiver" -}}
{{- $where := printf "receivers.%s" .name -}}
{{- $service := .values.service -}}
{{- $_ := include "headrace.receiver.certificate" . -}}
{{- with .own.image }}{{ include "headrace.refused.image" (dict "where" (printf "%s.image" $where) "image" .) }}{{ end -}}
{{- include "headrace.refused.memory" (dict "where" $where "resources" .values.resources) -}}
{{- $limit := include "headrace.memory" (dig "limits" "memory" "" .values.resources) -}}
{{- $given := dig "limits" "process_budget" "256MiB" .values.settings -}}
{{- $budget := include "headrace.setting" (dict "root" .root "kind" "bytes" "text" $given) -}}
{{- if and $limit $budget (lt (float64 $limit) (addf (mulf 2 (float64 $budget)) 134217728)) -}}
{{- fail (printf "%s.resources.limits.memory: %v is below twice limits.process_budget (%v) and 128 MiB." $where .values.resources.limits.memory (ternary $given (toJson $given) (kindIs "string" $given))) -}}
{{- end -}}
{{- if and (eq $service.type "ClusterIP") (or $service.nodePort $service.nodePorts) -}}
{{- fail (printf "%s.service.nodePort: a Service of type ClusterIP has none: set service.type to NodePort or LoadBalancer." $where) -}}
{{- end -}}
{{- if and (eq $service.type "ClusterIP") $service.externalTrafficPolicy -}}
{{- fail (printf "%s.service.externalTrafficPolicy: a Service of type ClusterIP has none: set service.type to NodePort or LoadBalancer." $where) -}}
{{- end -}}
{{- range list "loadBalancerIP" "loadBalancerClass" "loadBalancerSourceRanges" -}}
{{- if and (ne $service.type "LoadBalancer") (get $service .) -}}
{{- fail (printf "%s.service.%s: only a Service of type LoadBalancer has it, not %s." $where . $service.type) -}}
{{- end -}}
{{- end -}}
{{- $known := list -}}
{{- range (include "headrace.receiver.ports" . | fromJson).ports }}{{ $known = append $known .name }}{{ end -}}
{{- range $port, $_ := dig "service" "nodePorts" dict .own -}}
{{- if not (has $port $known) }}{{ fail (printf "%s.service.nodePorts: there is no port %s." $where $port) }}{{ end -}}
{{- end -}}
{{- $scaling := .values.autoscaling -}}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- fail (printf "%s.autoscaling: minReplicas is above maxReplicas." $where) -}}
{{- end -}}
{{- if and (include "headrace.receiver.stateful" .) (dig "autoscaling" "enabled" false .own) -}}
{{- fail (printf "%s.autoscaling.enabled: each replica consumes every device, so load never falls: set replicas." $where) -}}
{{- end -}}
{{- if and .values.podDisruptionBudget.enabled (has (toString .values.podDisruptionBudget.maxUnavailable) (list "0" "0%")) -}}
{{- fail (printf "%s.podDisruptionBudget.maxUnavailable: with %v no node can be drained." $where .values.podDisruptionBudget.maxUnavailable) -}}
{{- end -}}
{{- if and .values.gateway.parentRefs (eq .values.gateway.kind "TLSRoute") (not .values.gateway.hostnames) -}}
{{- fail (printf "%s.gateway.hostnames: a TLSRoute needs the names that clients ask for." $where) -}}
{{- end -}}
{{- if and (ne .name "logjam") .values.tls.certManager.enabled (not .values.tls.certManager.issuerRef) -}}
{{- fail (printf "%s.tls.certManager.issuerRef is missing." $where) -}}
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
{{- if eq $lake.mode "operator" -}}
{{- fail (printf "lake.settings.lake.%s: with mode operator, path and checkpoint must be URLs that driver and executors reach, such as s3a://bucket/lake." $name) -}}
{{- end -}}
{{- $below := false -}}
{{- range $mounts }}{{ if hasPrefix (printf "%s/" .) $place }}{{ $below = true }}{{ end }}{{ end -}}
{{- if not $below -}}
{{- fail (printf "lake.settings.lake.%s: %s is on no volume: the chart's is /var/lib/headrace, and lake.extraVolumeMounts may name others." $name $place) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $lake.mode "deployment" -}}
{{- include "headrace.refused.heap" (dict "where" "lake" "name" "settings.lake.driver_memory" "heap" (default "1g" $settings.driver_memory) "resources" $lake.resources "beside" 1.0) -}}
{{- end -}}
{{- end -}}
{{- end -}}
