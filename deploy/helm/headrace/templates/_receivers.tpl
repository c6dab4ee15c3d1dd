{{/* The ports of each receiver: the first is the main one; `setting`: the one that may set it, 0: none. A new receiver is a new row. */}}
{{- define "headrace.ports" -}}
forward: [{name: forward, port: 24224}, {name: heartbeat, port: 24224, protocol: UDP}]
lumberjack: [{name: lumberjack, port: 5044}]
courier: [{name: courier, port: 5043}]
logjam: [{name: logjam, port: 9604}, {name: logjam-pull, port: 9605, setting: pull_port}, {name: logjam-pub, port: 0, setting: pub_port}]
segment: [{name: segment, port: 12345}]
otlp: [{name: otlp, port: 4318}]
relp: [{name: relp, port: 2514}]
syslog: [{name: syslog, port: 5514}, {name: syslog-udp, port: 5514, protocol: UDP}]
{{- end -}}

{{/* The ports of one receiver with its settings, as {"ports": […]}: (dict "name" "forward" "values" …). */}}
{{- define "headrace.receiver.ports" -}}
{{- $ports := get (include "headrace.ports" . | fromYaml) .name -}}
{{- $made := list -}}
{{- range $port := $ports -}}
{{- if $port.setting -}}
{{- $number := dig "logjam" $port.setting $port.port $.values.settings | int -}}
{{- if $number }}{{ $made = append $made (set $port "port" $number) }}{{ end -}}
{{- else if eq $port.name "heartbeat" -}}
{{- if dig "forward" "heartbeat" true $.values.settings }}{{ $made = append $made $port }}{{ end -}}
{{- else -}}
{{- $made = append $made $port -}}
{{- end -}}
{{- end -}}
{{- dict "ports" $made | toJson -}}
{{- end -}}

{{/* Name of the Secret with a receiver's certificate; empty without TLS. */}}
{{- define "headrace.receiver.certificate" -}}
{{- if and (eq .name "logjam") (or (dig "tls" "existingSecret" "" .own) (dig "tls" "clientCa" "existingSecret" "" .own)) -}}
{{- fail "receivers.logjam.tls: ZeroMQ has no TLS." -}}
{{- end -}}
{{- if ne .name "logjam" -}}
{{- $tls := .values.tls -}}
{{- if and $tls.clientCa.existingSecret (not $tls.existingSecret) -}}
{{- fail (printf "receivers.%s.tls.clientCa needs a certificate: existingSecret." .name) -}}
{{- end -}}
{{- default "" $tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* Whether a receiver has to keep its name: Logjam's consumer of devices. Empty: no. */}}
{{- define "headrace.receiver.stateful" -}}
{{- if and (eq .name "logjam") (dig "logjam" "endpoints" dict .values.settings) -}}true{{- end -}}
{{- end -}}

{{/* The pod of a receiver: (dict "root" $ "name" "forward" "own" … "values" …). `own` has the receiver's, `values` the merged ones. */}}
{{- define "headrace.receiver.pod" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $mounts := list -}}
{{- $volumes := list -}}
{{- with include "headrace.receiver.certificate" . -}}
{{- $mounts = list (dict "name" "tls" "mountPath" "/etc/headrace/tls" "readOnly" true) -}}
{{- $volumes = list (dict "name" "tls" "secret" (dict "secretName" . "defaultMode" 288)) -}}
{{- with $values.tls.clientCa.existingSecret -}}
{{- $mounts = append $mounts (dict "name" "client-ca" "mountPath" "/etc/headrace/client-ca" "readOnly" true) -}}
{{- $items := list (dict "key" $values.tls.clientCa.key "path" "ca.crt") -}}
{{- $volumes = append $volumes (dict "name" "client-ca" "secret" (dict "secretName" . "defaultMode" 288 "items" $items)) -}}
{{- end -}}
{{- end -}}
metadata:
  {{- include "headrace.pod.metadata" (dict "root" $root "part" .name "values" $values) | nindent 2 }}
spec:
  {{- if eq .name "logjam" }}
  {{- /* Settings that ZeroMQ lacks can only come from receiverDefaults: the schema refuses them here. */}}
  {{- range list (list "tls" "minimum") (list "listen" "trusted_proxies") }}
  {{- $_ := unset (default dict (index $values.settings (first .))) (last .) }}
  {{- end }}
  {{- end }}
  {{- include "headrace.pod" (dict "root" $root "name" .name "user" $root.Values.podSecurity.runAsUser "account" (include "headrace.account" $root)
    "image" (include "headrace.image" (dict "root" $root "name" .name "own" .own.image)) "values" $values "secrets" $values.secrets
    "env" (include "headrace.receiver.env" .) "container" (include "headrace.receiver.container" .)
    "mounts" $mounts "volumes" $volumes "tmp" "64Mi") | nindent 2 }}
  {{- /* The pause, the drain, and what ends after it: listeners and the producer. */}}
  {{- $drain := include "headrace.limit" (dict "root" $root "settings" $values.settings "kind" "seconds" "name" "drain_time") | float64 | ceil | int }}
  terminationGracePeriodSeconds: {{ add (int $values.preStopSeconds) $drain 15 }}
{{- end -}}

{{- define "headrace.receiver.env" -}}
{{- include "headrace.env" .values.settings | trim }}
{{ include "headrace.listen.env" (dict "root" .root "sections" (list "LISTEN" "OPS")) | trim }}
{{- if include "headrace.receiver.certificate" . }}
- name: HEADRACE_TLS__CERT
  value: /etc/headrace/tls/tls.crt
- name: HEADRACE_TLS__KEY
  value: /etc/headrace/tls/tls.key
{{- if .values.tls.clientCa.existingSecret }}
- name: HEADRACE_TLS__CLIENT_CA
  value: /etc/headrace/client-ca/ca.crt
{{- end }}
{{- end }}
{{- if include "headrace.receiver.stateful" . }}
- name: HEADRACE_LOGJAM__CONSUMER
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}
{{- end -}}

{{- define "headrace.receiver.container" -}}
ports:
  {{- range (include "headrace.receiver.ports" . | fromJson).ports }}
  - name: {{ .name }}
    containerPort: {{ int .port }}
    protocol: {{ default "TCP" .protocol }}
  {{- end }}
  - name: ops
    containerPort: 8080
    protocol: TCP
# a node that starts many pods at once is slow: 300 s
{{- $probes := default dict .values.probes }}
{{- range $name, $usual := dict
  "startup" (dict "httpGet" (dict "path" "/livez" "port" "ops") "periodSeconds" 1 "timeoutSeconds" 5 "failureThreshold" 300)
  "liveness" (dict "httpGet" (dict "path" "/livez" "port" "ops") "periodSeconds" 10 "timeoutSeconds" 5)
  "readiness" (dict "httpGet" (dict "path" "/readyz" "port" "ops") "periodSeconds" 3 "timeoutSeconds" 5 "failureThreshold" 2) }}
{{ $name }}Probe:
  {{- mustMergeOverwrite $usual (get $probes $name | default dict) | toYaml | nindent 2 }}
{{- end }}
{{- with .values.preStopSeconds }}
lifecycle:
  preStop:
    sleep:
      seconds: {{ int . }}
{{- end }}
{{- end -}}
