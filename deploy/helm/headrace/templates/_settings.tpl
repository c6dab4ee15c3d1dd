{{/* Settings as environment variables: a mapping of sections. Not for secrets. */}}
{{- define "headrace.env" -}}
{{- range $section, $names := . }}
{{- range $name, $value := $names }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ printf "HEADRACE_%s__%s" $section $name | upper }}
  {{- /* Not toString: it would write 16777216 as 1.6777216e+07. */}}
  {{- /* Kubernetes replaces $(NAME), and makes one $ of two. */}}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | replace "$" "$$" | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The brokers' addresses, and the login there. Files of secrets are mounted by `headrace.kafka.volume`. */}}
{{- define "headrace.kafka.env" -}}
{{- $kafka := .Values.kafka -}}
{{- $settings := deepCopy (default dict $kafka.settings) -}}
{{- $protocol := default "PLAINTEXT" $settings.security_protocol -}}
{{- if and $kafka.enabled (or $settings.bootstrap_servers (include "headrace.kafka.secrets" .) (ne $protocol "PLAINTEXT")) -}}
{{- fail "kafka.enabled is true: the development broker has no login and no TLS. Set kafka.enabled to false to use your own brokers." -}}
{{- end -}}
{{- if and (not $kafka.enabled) (not $settings.bootstrap_servers) -}}
{{- fail "kafka.settings.bootstrap_servers is missing: with kafka.enabled false, say where your own brokers are." -}}
{{- end -}}
{{- $byToken := and (hasPrefix "SASL" $protocol) (eq (default "" $settings.sasl_mechanism) "OAUTHBEARER") -}}
{{- if and (or $kafka.oauth.existingSecret $kafka.oauth.ca.existingSecret) (not $byToken) -}}
{{- fail "kafka.oauth needs kafka.settings: a SASL security_protocol and sasl_mechanism OAUTHBEARER." -}}
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
{{- with $kafka.oauth.existingSecret }}
- name: HEADRACE_KAFKA__OAUTH_CLIENT_ID
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: {{ $kafka.oauth.clientIdKey }}
- name: HEADRACE_KAFKA__OAUTH_CLIENT_SECRET_FILE
  value: /etc/headrace/kafka/client-secret
{{- end }}
{{- if $kafka.oauth.ca.existingSecret }}
- name: HEADRACE_KAFKA__OAUTH_CA
  value: /etc/headrace/kafka/oauth-ca.crt
{{- end }}
{{- if $kafka.ca.existingSecret }}
- name: HEADRACE_KAFKA__CA
  value: /etc/headrace/kafka/ca.crt
{{- end }}
{{- with $kafka.certificate }}
{{- if .existingSecret }}
- name: HEADRACE_KAFKA__CERTIFICATE
  value: /etc/headrace/kafka/tls.crt
- name: HEADRACE_KAFKA__KEY
  value: /etc/headrace/kafka/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{/* Whether anything of the access to Kafka comes from Secrets; empty: no. */}}
{{- define "headrace.kafka.secrets" -}}
{{- $kafka := .Values.kafka -}}
{{- if or $kafka.sasl.existingSecret $kafka.ca.existingSecret $kafka.certificate.existingSecret $kafka.oauth.existingSecret $kafka.oauth.ca.existingSecret -}}true{{- end -}}
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
{{- if include "headrace.kafka.secrets" .root }}
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
      {{- with $kafka.oauth.existingSecret }}
      - secret:
          name: {{ . }}
          items:
            - key: {{ $kafka.oauth.clientSecretKey }}
              path: client-secret
      {{- end }}
      {{- with $kafka.oauth.ca.existingSecret }}
      - secret:
          name: {{ . }}
          items:
            - key: {{ $kafka.oauth.ca.key }}
              path: oauth-ca.crt
      {{- end }}
      {{- with $kafka.certificate }}
      {{- if .existingSecret }}
      - secret:
          name: {{ .existingSecret }}
          items:
            - key: {{ .certificateKey }}
              path: tls.crt
            - key: {{ .keyKey }}
              path: tls.key
      {{- end }}
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
{{- if include "headrace.kafka.secrets" .root }}
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
