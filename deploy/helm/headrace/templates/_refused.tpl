{{/* Refuses what cannot work. Each sentence begins with the value. Quantities that are none are left to the schema. */}}
{{- define "headrace.refused" -}}
{{- $root := . -}}
{{- if not (regexMatch "^[a-z]" (include "headrace.fullname" .)) -}}
{{- fail (printf "release name: %s begins with a digit, and names of Services must not: set fullnameOverride." .Release.Name) -}}
{{- end -}}
{{- range $where, $labels := dict "labels" .Values.labels "monitoring.labels" .Values.monitoring.labels "monitoring.dashboardLabels" .Values.monitoring.dashboardLabels -}}
{{- include "headrace.refused.labels" (dict "where" $where "labels" $labels) -}}
{{- end -}}
{{- $_ := include "headrace.kafka.env" . -}}
{{- include "headrace.refused.image" (dict "where" "image.tag" "image" (printf "headrace:%s" (default .Chart.AppVersion .Values.image.tag))) -}}
{{- range $name, $part := dict "topics" .Values.topics "lake" .Values.lake "live" .Values.live "test" .Values.test "kafka.development" .Values.kafka.development -}}
{{- with $part.image }}{{ include "headrace.refused.image" (dict "where" (printf "%s.image" $name) "image" .) }}{{ end -}}
{{- include "headrace.refused.resources" (dict "where" $name "resources" $part.resources) -}}
{{- $pod := mustMergeOverwrite (deepCopy $root.Values.podDefaults) (deepCopy $part) -}}
{{- $own := dict "name" $name "volumeMounts" (prepend (default list $pod.extraVolumeMounts) (dict "name" "tmp" "mountPath" "/tmp")) -}}
{{- $given := list -}}
{{- if ne $name "kafka.development" -}}
{{- $given = concat (include "headrace.kafka.env" $root | fromYamlArray) (include "headrace.env" (default dict $part.settings) | fromYamlArray) -}}
{{- end -}}
{{- $_ := set $own "env" (concat $given (default list $pod.extraEnv)) -}}
{{- $volumes := list (dict "name" "tmp") -}}
{{- if or (eq $name "kafka.development") (and (eq $name "lake") (include "headrace.lake.volume" $root)) -}}
{{- $volumes = append $volumes (dict "name" "data") -}}
{{- end -}}
{{- $_ := set $pod "volumes" (concat $volumes (default list $pod.extraVolumes)) -}}
{{- $_ := set $pod "containers" (prepend (default list $pod.extraContainers) $own) -}}
{{- include "headrace.refused.pod" (dict "where" $name "pod" $pod "labels" $pod.podLabels) -}}
{{- if and $part.storage (dig "storage" "ephemeral" false $part) $part.storage.existingClaim -}}
{{- fail (printf "%s.storage.existingClaim: with ephemeral true it would not be used." $name) -}}
{{- end -}}
{{- end -}}
{{- $taken := dict -}}
{{- range $receiver := (include "headrace.receivers" . | fromJson).list -}}
{{- $_ := set $receiver "root" $root -}}
{{- include "headrace.refused.receiver" $receiver -}}
{{- with $receiver.values.service -}}
{{- range prepend (values .nodePorts) .nodePort -}}
{{- if . -}}
{{- $port := int . | toString -}}
{{- if hasKey $taken $port }}{{ fail (printf "receivers.%s.service.nodePort: receivers.%s has %s already." $receiver.name (get $taken $port) $port) }}{{ end -}}
{{- $_ := set $taken $port $receiver.name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.kafka.enabled -}}
{{- include "headrace.refused.heap" (dict "where" "kafka.development" "heap" .Values.kafka.development.heap "name" "heap" "resources" .Values.kafka.development.resources "beside" 0.25) -}}
{{- end -}}
{{- include "headrace.refused.lake" . -}}
{{- if and .Values.networkPolicy.enabled .Values.networkPolicy.egress (not .Values.kafka.enabled) (not .Values.networkPolicy.kafka) -}}
{{- fail "networkPolicy.kafka: with egress true and kafka.enabled false, no pod reaches your brokers: give a rule for them." -}}
{{- end -}}
{{- if and (eq .Values.network.ipFamilyPolicy "SingleStack") (gt (len .Values.network.ipFamilies) 1) -}}
{{- fail "network.ipFamilies: SingleStack has one family." -}}
{{- end -}}
{{- if and .Values.monitoring.podMonitor .Values.monitoring.serviceMonitor -}}
{{- fail "monitoring.podMonitor: with serviceMonitor, too, every pod is counted twice: choose one." -}}
{{- end -}}
{{- $interval := include "headrace.number" (dict "text" .Values.monitoring.interval "units" (dict "ms" 0.001 "s" 1 "m" 60 "h" 3600)) -}}
{{- if and .Values.monitoring.rules (gt (float64 $interval) 60.0) -}}
{{- fail (printf "monitoring.interval: %s is too long for monitoring.rules, which look at what grew within two minutes: at most 1m." .Values.monitoring.interval) -}}
{{- end -}}
{{- if hasKey .Values.monitoring.ruleLabels "severity" }}{{ fail "monitoring.ruleLabels: each alert has its own severity." }}{{ end -}}
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

{{- define "headrace.refused.resources" -}}
{{- range $name := list "memory" "cpu" -}}
{{- $given := dict -}}
{{- range list "limits" "requests" }}{{ $_ := set $given . (dig . $name "" (default dict $.resources) | toJson | trimAll "\"") }}{{ end -}}
{{- $limit := include "headrace.amount" $given.limits -}}
{{- $request := include "headrace.amount" $given.requests -}}
{{- if and $limit $request (gt (float64 $request) (float64 $limit)) -}}
{{- fail (printf "%s.resources.requests.%s: %s is above the limit, %s." $.where $name $given.requests $given.limits) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "headrace.refused.labels" -}}
{{- range $name, $_ := .labels -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|component|version|managed-by|part-of)|helm\\.sh/chart)$" $name -}}
{{- fail (printf "%s: %s is the chart's own." $.where $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Refuses a pod whose given parts the API server would refuse: (dict "where" "lake" "pod" spec "labels" …). The first container is ours. */}}
{{- define "headrace.refused.pod" -}}
{{- $where := .where -}}
{{- include "headrace.refused.labels" (dict "where" (printf "%s.podLabels" $where) "labels" .labels) -}}
{{- $volumes := list -}}
{{- range .pod.volumes -}}
{{- if has .name $volumes }}{{ fail (printf "%s.extraVolumes: %s is there twice." $where .name) }}{{ end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- $paths := list -}}
{{- range (first .pod.containers).volumeMounts -}}
{{- if not (has .name $volumes) }}{{ fail (printf "%s.extraVolumeMounts: there is no volume %s." $where .name) }}{{ end -}}
{{- if has .mountPath $paths }}{{ fail (printf "%s.extraVolumeMounts: %s is there twice." $where .mountPath) }}{{ end -}}
{{- $paths = append $paths .mountPath -}}
{{- end -}}
{{- $variables := list -}}
{{- range (first .pod.containers).env -}}
{{- if has .name $variables }}{{ fail (printf "%s.extraEnv: %s is there twice." $where .name) }}{{ end -}}
{{- $variables = append $variables .name -}}
{{- end -}}
{{- $containers := list -}}
{{- range concat .pod.containers (default list .pod.initContainers) -}}
{{- if has .name $containers }}{{ fail (printf "%s.extraContainers: %s is there twice." $where .name) }}{{ end -}}
{{- $containers = append $containers .name -}}
{{- end -}}
{{- if and (eq (default "" .pod.dnsPolicy) "None") (not (dig "nameservers" list (default dict .pod.dnsConfig))) -}}
{{- fail (printf "%s.dnsConfig.nameservers: dnsPolicy None needs one." $where) -}}
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

{{- define "headrace.refused.receiver" -}}
{{- $where := printf "receivers.%s" .name -}}
{{- $service := .values.service -}}
{{- $_ := include "headrace.receiver.certificate" . -}}
{{- with .own.image }}{{ include "headrace.refused.image" (dict "where" (printf "%s.image" $where) "image" .) }}{{ end -}}
{{- include "headrace.refused.resources" (dict "where" $where "resources" .values.resources) -}}
{{- $limit := include "headrace.amount" (dig "limits" "memory" "" (default dict .values.resources)) -}}
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
{{- $numbers := dict "8080/TCP" "health and metrics" -}}
{{- range (include "headrace.receiver.ports" . | fromJson).ports -}}
{{- $known = append $known .name -}}
{{- $number := printf "%d/%s" (int .port) (default "TCP" .protocol) -}}
{{- if hasKey $numbers $number }}{{ fail (printf "%s: %s and %s have the same port, %v." $where .name (get $numbers $number) .port) }}{{ end -}}
{{- $_ := set $numbers $number .name -}}
{{- end -}}
{{- $others := rest (include "headrace.receiver.ports" . | fromJson).ports -}}
{{- range $others -}}
{{- if and $service.port (ne .protocol "UDP") (eq (int .port) (int $service.port)) }}{{ fail (printf "%s.service.port: %s has %v already." $where .name .port) }}{{ end -}}
{{- end -}}
{{- range $port, $_ := dig "service" "nodePorts" dict .own -}}
{{- if not (has $port $known) }}{{ fail (printf "%s.service.nodePorts: there is no port %s." $where $port) }}{{ end -}}
{{- end -}}
{{- $scaling := .values.autoscaling -}}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- fail (printf "%s.autoscaling: minReplicas is above maxReplicas." $where) -}}
{{- end -}}
{{- if and $scaling.metrics (eq $scaling.type "keda") }}{{ fail (printf "%s.autoscaling.metrics: KEDA has triggers." $where) }}{{ end -}}
{{- if and $scaling.triggers (eq $scaling.type "hpa") }}{{ fail (printf "%s.autoscaling.triggers: an HPA has metrics." $where) }}{{ end -}}
{{- if and (include "headrace.receiver.stateful" .) (dig "autoscaling" "enabled" false .own) -}}
{{- fail (printf "%s.autoscaling.enabled: each replica consumes every device, so load never falls: set replicas." $where) -}}
{{- end -}}
{{- if and .values.podDisruptionBudget.enabled (has (toString .values.podDisruptionBudget.maxUnavailable) (list "0" "0%")) -}}
{{- fail (printf "%s.podDisruptionBudget.maxUnavailable: with %v no node can be drained." $where .values.podDisruptionBudget.maxUnavailable) -}}
{{- end -}}
{{- if and .values.gateway.parentRefs (eq .values.gateway.kind "TLSRoute") (not .values.gateway.hostnames) -}}
{{- fail (printf "%s.gateway.hostnames: a TLSRoute needs the names that clients ask for." $where) -}}
{{- end -}}
{{- if and (eq .values.gateway.kind "TCPRoute") .values.gateway.hostnames -}}
{{- fail (printf "%s.gateway.hostnames: only a TLSRoute has them." $where) -}}
{{- end -}}
{{- if and (ne .name "logjam") .values.tls.certManager.enabled (not .values.tls.certManager.issuerRef.name) -}}
{{- fail (printf "%s.tls.certManager.issuerRef.name is missing." $where) -}}
{{- end -}}
{{- $hours := dict "s" 0.000277 "m" 0.0166667 "h" 1 -}}
{{- $lasts := include "headrace.number" (dict "text" .values.tls.certManager.duration "units" $hours) -}}
{{- $renewed := include "headrace.number" (dict "text" .values.tls.certManager.renewBefore "units" $hours) -}}
{{- if and $lasts $renewed (ge (float64 $renewed) (float64 $lasts)) -}}
{{- fail (printf "%s.tls.certManager.renewBefore: %s is not before the end of %s." $where .values.tls.certManager.renewBefore .values.tls.certManager.duration) -}}
{{- end -}}
{{- range $name, $url := dig "logjam" "endpoints" dict (default dict .values.settings) -}}
{{- if not (regexMatch "^(tcp|ipc)://" (toString $url)) }}{{ fail (printf "%s.settings.logjam.endpoints: %s is neither tcp://HOST:PORT nor ipc://PATH." $where $url) }}{{ end -}}
{{- end -}}
{{- $pod := include "headrace.receiver.pod" . | fromYaml -}}
{{- include "headrace.refused.pod" (dict "where" $where "pod" $pod.spec "labels" .values.podLabels) -}}
{{- end -}}

{{- define "headrace.refused.lake" -}}
{{- $lake := .Values.lake -}}
{{- if ne $lake.mode "none" -}}
{{- $settings := get (include "headrace.lake.settings" . | fromJson) "lake" -}}
{{- range list (list $settings.path $settings.checkpoint) (list $settings.checkpoint $settings.path) -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" (first .))) (printf "%s/" (last .)) }}{{ fail "lake.settings.lake: path and checkpoint must not contain each other." }}{{ end -}}
{{- end -}}
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
