{{- define "ccm.name" -}}
{{- if contains "cloud-controller-manager" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-cloud-controller-manager" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "ccm.selector" -}}
app.kubernetes.io/name: cloud-controller-manager
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ccm.labels" -}}
{{ include "ccm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "ccm.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}{{ else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "ccm.configSecret" -}}
{{- if .Values.cloudConfig.existingSecret }}{{ .Values.cloudConfig.existingSecret }}{{ else if .Values.cloudConfig.inline }}{{ include "ccm.name" . }}-config{{ end }}
{{- end }}

{{/* All flags; those of the user win, and null drops one. */}}
{{- define "ccm.args" -}}
{{- $values := .Values }}
{{- $flags := dict
  "cloud-provider" $values.cloudProvider
  "cluster-name" $values.clusterName
  "configure-cloud-routes" $values.routes.enabled
  "use-service-account-credentials" $values.serviceAccountCredentials
  "leader-elect-resource-name" $values.leaderElection.leaseName
  "leader-elect-resource-namespace" $values.leaderElection.namespace
  "bind-address" $values.bindAddress
  "secure-port" (int $values.securePort)
  "v" (int $values.verbosity)
}}
{{- if include "ccm.configSecret" . }}{{ $_ := set $flags "cloud-config" (printf "/etc/cloud/%s" $values.cloudConfig.key) }}{{ end }}
{{- if $values.routes.enabled }}{{ $_ := set $flags "cluster-cidr" $values.routes.clusterCIDR }}{{ end }}
{{- if $values.controllers }}{{ $_ := set $flags "controllers" (join "," $values.controllers) }}{{ end }}
{{- if $values.leaderElection.migration }}{{ $_ := set $flags "enable-leader-migration" true }}{{ end }}
{{- if $values.volumeWebhook.enabled }}
{{- $_ := set $flags "feature-gates" "CloudControllerManagerWebhook=true" }}
{{- $_ := set $flags "webhooks" "persistentvolume-label" }}
{{- $_ := set $flags "webhook-secure-port" (int $values.volumeWebhook.port) }}
{{- $_ := set $flags "webhook-tls-cert-file" "/etc/ccm-webhook/tls.crt" }}
{{- $_ := set $flags "webhook-tls-private-key-file" "/etc/ccm-webhook/tls.key" }}
{{- end }}
{{- range $name, $value := $values.flags }}{{ $_ := set $flags $name $value }}{{ end }}
{{- /* Gates add up; without its own one the webhook is not served, and nobody would answer the API server. */}}
{{- $gates := index $flags "feature-gates" }}
{{- if and $values.volumeWebhook.enabled $gates (hasKey $values.flags "feature-gates") }}
{{- $_ := set $flags "feature-gates" (prepend (kindIs "slice" $gates | ternary $gates (list $gates)) "CloudControllerManagerWebhook=true") }}
{{- end }}
{{- range $name, $value := $flags }}
{{- if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%v" $name . | quote }}
{{- end }}
{{- else if kindIs "float64" $value }}
- {{ printf "--%s=%v" $name (ternary (int64 $value) $value (eq (floor $value) $value)) | quote }}
{{- else if not (kindIs "invalid" $value) }}
- {{ printf "--%s=%v" $name $value | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The kubelet asks from the node: on its own network the port may be bound to the loopback address alone. */}}
{{- define "ccm.probe" -}}
scheme: HTTPS
{{- if .Values.hostNetwork }}
host: {{ if contains ":" (toString .Values.bindAddress) }}"::1"{{ else if or (eq .Values.bindAddress "0.0.0.0") (eq .Values.bindAddress "127.0.0.1") }}127.0.0.1{{ else }}{{ .Values.bindAddress | quote }}{{ end }}
{{- end }}
port: https
{{- end }}

{{- define "ccm.binding" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "ccm.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .roleKind }}
  name: {{ .role }}
subjects:
- {{ toYaml .subject | nindent 2 | trim }}
{{- end }}
