{{/* A pod's metadata: (dict "root" $ "part" "forward" "values" …). */}}
{{- define "headrace.pod.metadata" -}}
labels:
  {{- include "headrace.labels" (merge (dict "more" .values.podLabels) .) | nindent 2 }}
{{- with .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The specification of a pod (pod security "restricted") with one container of ours: (dict "root" $ "name" "forward" "user" 10001
"account" "…" "image" "…" "values" …). `container`: more of its fields, as YAML; `env`, `mounts`, `volumes`: more of those lists;
`secrets`: of its settings; `envFromSecret`: whose keys become variables; `tmp`: the size of /tmp. */}}
{{- define "headrace.pod" -}}
{{- $values := .values -}}
{{- $own := ne .name "kafka" -}}
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
  {{- mustMergeOverwrite $security (default dict $values.podSecurityContext) | toYaml | nindent 2 }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- include "headrace.placement" $values }}
{{- with $values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ .image }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    {{- .container | nindent 4 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: {{ $own }}{{ if not $own }} # the image writes its configuration into itself{{ end }}
      capabilities:
        drop: [ALL]
    env:
      {{- if $own }}
      {{- include "headrace.kafka.env" .root | trim | nindent 6 }}
      {{- end }}
      {{- range list (default "" .env) (include "headrace.secrets.env" .secrets) }}
      {{- with trim . }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- end }}
      {{- with $values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- if or $values.extraEnvFrom .envFromSecret }}
    envFrom:
      {{- with .envFromSecret }}
      - secretRef:
          name: {{ . }}
      {{- end }}
      {{- with $values.extraEnvFrom }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    resources:
      {{- toYaml $values.resources | nindent 6 }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- with include "headrace.secrets.mounts" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with concat (default list .mounts) (default list $values.extraVolumeMounts) }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
  {{- with $values.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  - name: tmp
    emptyDir: {{ ternary (dict "sizeLimit" .tmp) dict (not (empty .tmp)) | toJson }}
  {{- with include "headrace.secrets.volumes" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with concat (default list .volumes) (default list $values.extraVolumes) }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
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
