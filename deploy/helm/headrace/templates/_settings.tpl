{{/* Settings as environment variables: a mapping of sections. Not for secrets. */}}
{{- define "headrace.env" -}}
{{- range $section, $names := . }}
{{- range $name, $value := $names }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ printf "HEADRACE_%s__%s" $section $name | upper }}
  {{- /* Not toString: it would write 16777216 as 1.6777216e+07. */}}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where the brokers are, and how to log in. Files of secrets are mounted by `headrace.kafka.volume`. */}}
{{- define "headrace.kafka.env" -}}
{{- $kafka := .Values.kafka -}}
{{- $settings := deepCopy $kafka.settings -}}
{{- $protocol := default "PLAINTEXT" $settings.security_protocol -}}
{{- if and $kafka.enabled (or $settings.bootstrap_servers $kafka.sasl.existingSecret $kafka.ca.existingSecret (ne $protocol "PLAINTEXT")) -}}
{{- fail "kafka.enabled is true: the development broker has no login and no TLS. Set kafka.enabled to false to use your own brokers." -}}
{{- end -}}
{{- if and (not $kafka.enabled) (not $settings.bootstrap_servers) -}}
{{- fail "kafka.settings.bootstrap_servers is missing: with kafka.enabled false, say where your own brokers are." -}}
{{- end -}}
{{- if and (hasPrefix "SASL" $protocol) (not $kafka.sasl.existingSecret) -}}
{{- fail (printf "kafka.sasl.existingSecret is missing: security_protocol %s needs a user name and a password." $protocol) -}}
{{- end -}}
{{- if $kafka.enabled -}}
{{- $_ := set $settings "bootstrap_servers" (printf "%s-kafka:9092" (include "headrace.fullname" .)) -}}
{{- end -}}
{{- include "headrace.env" (dict "kafka" $settings) -}}
{{- with $kafka.sasl.existingSecret }}
- name: HEADRACE_KAFKA__SASL_USERNAME
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $kafka.sasl.usernameKey }}
- name: HEADRACE_KAFKA__SASL_PASSWORD_FILE
  value: /etc/headrace/kafka/password
{{- end }}
{{- if $kafka.ca.existingSecret }}
- name: HEADRACE_KAFKA__CA
  value: /etc/headrace/kafka/ca.crt
{{- end }}
{{- end -}}

{{/* Variables that name the files of secret settings: (section: {name: {secret, key}}). */}}
{{- define "headrace.secrets.env" -}}
{{- range $section, $names := . }}
{{- range $name, $_ := $names }}
- name: {{ printf "HEADRACE_%s__%s_FILE" $section $name | upper }}
  value: /etc/headrace/secrets/{{ $section }}.{{ $name }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Volumes of the Secrets: (dict "root" $ "secrets" {…}). Files are for the pod's group only. */}}
{{- define "headrace.secrets.volumes" -}}
{{- $kafka := .root.Values.kafka -}}
{{- if or $kafka.sasl.existingSecret $kafka.ca.existingSecret }}
- name: kafka-access
  projected:
    defaultMode: 0440
    sources:
      {{- with $kafka.sasl.existingSecret }}
      - secret:
          name: {{ . }}
          items:
            - key: {{ $kafka.sasl.passwordKey }}
              path: password
      {{- end }}
      {{- with $kafka.ca.existingSecret }}
      - secret:
          name: {{ . }}
          items:
            - key: {{ $kafka.ca.key }}
              path: ca.crt
      {{- end }}
{{- end }}
{{- if .secrets }}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range $section, $names := .secrets }}
      {{- range $name, $from := $names }}
      - secret:
          name: {{ $from.secret }}
          items:
            - key: {{ $from.key }}
              path: {{ $section }}.{{ $name }}
      {{- end }}
      {{- end }}
{{- end }}
{{- end -}}

{{- define "headrace.secrets.mounts" -}}
{{- $kafka := .root.Values.kafka -}}
{{- if or $kafka.sasl.existingSecret $kafka.ca.existingSecret }}
- name: kafka-access
  mountPath: /etc/headrace/kafka
  readOnly: true
{{- end }}
{{- if .secrets }}
- name: secrets
  mountPath: /etc/headrace/secrets
  readOnly: true
{{- end }}
{{- end -}}
