{{/* A pod's metadata: (dict "root" $ "part" "forward" "values" …). */}}
{{- define "headrace.pod.metadata" -}}
labels:
  {{- include "headrace.labels" (merge (dict "more" .values.podLabels) .) | nindent 2 }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The fields of every pod: (dict "root" $ "user" 10001 "account" "…" "values" …). Pod security "restricted". */}}
{{- define "headrace.pod" -}}
enableServiceLinks: false
automountServiceAccountToken: false
{{- with .account }}
serviceAccountName: {{ . }}
{{- end }}
{{- $security := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- with .user }}
{{- $security = merge $security (dict "runAsUser" (int .) "runAsGroup" (int .) "fsGroup" (int .) "fsGroupChangePolicy" "OnRootMismatch") }}
{{- end }}
securityContext:
  {{- mustMergeOverwrite $security (default dict .values.podSecurityContext) | toYaml | nindent 2 }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- include "headrace.placement" .values }}
{{- with .values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "headrace.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The fields of a pod's placement and of its names. */}}
{{- define "headrace.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "hostAliases" "dnsConfig" }}
{{- with get $ $name }}
{{ $name }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* `envFrom` of our container: (dict "values" … "secret" "…"). */}}
{{- define "headrace.envFrom" -}}
{{- if or .values.extraEnvFrom .secret }}
envFrom:
  {{- with .secret }}
  - secretRef:
      name: {{ . }}
  {{- end }}
  {{- with .values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The specification of a claim from values of storage. */}}
{{- define "headrace.claim" -}}
accessModes:
  {{- toYaml .accessModes | nindent 2 }}
{{- with .storageClass }}
storageClassName: {{ . }}
{{- end }}
resources:
  requests:
    storage: {{ .size }}
{{- end -}}
