{{- define "ccm.name" -}}
{{- include "ccm.fullname" . }}{{ if .Values.trial }}-trial{{ end }}
{{- end }}

{{- define "ccm.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := default "cloud-controller-manager" .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}
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
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* A block of the metadata of an object. */}}
{{- define "ccm.annotations" }}
{{- with .Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- define "ccm.serviceAccount" -}}
{{- if .Values.serviceAccount.name }}{{ .Values.serviceAccount.name }}{{ if and .Values.trial .Values.serviceAccount.create }}-trial{{ end }}
{{- else if .Values.serviceAccount.create }}{{ include "ccm.name" . }}
{{- else }}{{ fail "serviceAccount.name is required when serviceAccount.create is false" }}
{{- end }}
{{- end }}

{{/* Settings that render and then do not work. */}}
{{- define "ccm.checks" }}
{{- if and .Values.image.tag .Values.image.digest }}
{{- fail (printf "image.tag %s and image.digest %s: the digest wins; leave out the tag, or set image.digest to the digest of your image or to the empty string" .Values.image.tag .Values.image.digest) }}
{{- end }}
{{- $strategy := .Values.updateStrategy.type | default "RollingUpdate" }}
{{- if or (and (eq $strategy "OnDelete") (eq .Values.kind "Deployment")) (and (eq $strategy "Recreate") (eq .Values.kind "DaemonSet")) }}
{{- fail (printf "updateStrategy.type %s: a %s has none of that name; use RollingUpdate, or OnDelete with a DaemonSet and Recreate with a Deployment" $strategy .Values.kind) }}
{{- end }}
{{- $loopback := or (hasPrefix "127." .Values.bindAddress) (eq .Values.bindAddress "::1") }}
{{- if and .Values.metrics.serviceMonitor.enabled (or $loopback (eq (int .Values.securePort) 0)) }}
{{- fail (printf "metrics.serviceMonitor.enabled: Prometheus cannot reach the port at bindAddress %s, securePort %d; set bindAddress to 0.0.0.0, which means all addresses of the node, IPv4 and IPv6" .Values.bindAddress (int .Values.securePort)) }}
{{- end }}
{{- $given := .Values.flags | default dict | keys }}
{{- range .Values.extraArgs }}{{ $given = append $given (splitList "=" . | first | trimPrefix "--" | replace "_" "-") }}{{ end }}
{{- if and .Values.trial (or .Values.metrics.serviceMonitor.enabled .Values.volumeWebhook.enabled (has "dry-run" $given)) }}
{{- fail "trial: it has no port and writes nothing; leave out metrics.serviceMonitor, volumeWebhook and the flag dry-run" }}
{{- end }}
{{- range $flag, $value := dict "cloud-provider" "cloudProvider" "bind-address" "bindAddress" "secure-port" "securePort" "leader-elect-resource-name" "leaderElection.leaseName" "leader-elect-resource-namespace" "leaderElection.namespace" "enable-leader-migration" "leaderElection.migration" "use-service-account-credentials" "serviceAccountCredentials" "webhook-secure-port" "volumeWebhook.port" }}
{{- if has $flag $given }}{{ fail (printf "the flag %s, in flags or extraArgs: set %s instead, which roles, ports and probes follow too" $flag $value) }}{{ end }}
{{- end }}
{{- if and .Values.volumeWebhook.enabled (eq (int .Values.securePort) (int .Values.volumeWebhook.port)) }}
{{- fail (printf "volumeWebhook.port and securePort are both %d; each needs a port of its own" (int .Values.securePort)) }}
{{- end }}
{{- if and $loopback (not .Values.hostNetwork) (gt (include "ccm.port" . | int) 0) }}
{{- fail (printf "hostNetwork=false: the kubelet cannot reach the probes at bindAddress %s; set bindAddress to 0.0.0.0, or securePort to 0" .Values.bindAddress) }}
{{- end }}
{{- end }}

{{/* Whether the controller that deletes nodes runs; an entry with its name wins over "*". */}}
{{- define "ccm.deletesNodes" -}}
{{- $listed := .Values.controllers }}
{{- range $name := list "cloud-node-lifecycle-controller" "cloud-node-lifecycle" }}
{{- if has $name $listed }}{{ $listed = list "*" }}{{ else if has (printf "-%s" $name) $listed }}{{ $listed = list "-" }}{{ end }}
{{- end }}
{{- if or (not $listed) (has "*" $listed) (hasKey (.Values.flags | default dict) "controllers") }}true{{ end }}
{{- end }}

{{/* Whether the controller for the load balancer classes of GKE runs. */}}
{{- define "ccm.runsGkeService" -}}
{{- $listed := .Values.controllers }}
{{- $named := or (has "gke-service-lb-controller" $listed) (has "gke-service" $listed) (hasKey (.Values.flags | default dict) "controllers") }}
{{- if and (eq .Values.cloudProvider "gce") $named }}true{{ end }}
{{- end }}

{{- define "ccm.image" -}}
{{- $repository := required "image.repository is required: the project publishes no image; build one with its Dockerfile, and set image.repository and image.tag to where you pushed it" .Values.image.repository }}
{{- if .Values.image.digest }}{{ $repository }}@{{ .Values.image.digest }}{{ else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "ccm.configSecret" -}}
{{- if .Values.cloudConfig.existingSecret }}{{ .Values.cloudConfig.existingSecret }}{{ else if .Values.cloudConfig.inline }}{{ include "ccm.name" . }}-config{{ end }}
{{- end }}

{{/* A trial has no port: the program that it runs beside has it. */}}
{{- define "ccm.port" -}}
{{ ternary 0 (int .Values.securePort) .Values.trial }}
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
  "secure-port" (include "ccm.port" . | int)
  "v" (int $values.verbosity)
}}
{{- if $values.trial }}{{ $_ := set $flags "dry-run" true }}{{ end }}
{{- if include "ccm.configSecret" . }}{{ $_ := set $flags "cloud-config" (printf "%s/%s" $values.cloudConfig.mountPath $values.cloudConfig.key) }}{{ end }}
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
{{- /* The webhook needs its own feature gate besides those of the user; without it the API server gets no answer. */}}
{{- $gates := index $flags "feature-gates" }}
{{- if and $values.volumeWebhook.enabled $gates (hasKey ($values.flags | default dict) "feature-gates") }}
{{- $_ := set $flags "feature-gates" (prepend (kindIs "slice" $gates | ternary $gates (list $gates)) "CloudControllerManagerWebhook=true") }}
{{- end }}
{{- range $name, $value := $flags }}
{{- if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%s" $name (include "ccm.text" .) | quote }}
{{- end }}
{{- else if not (kindIs "invalid" $value) }}
- {{ printf "--%s=%s" $name (include "ccm.text" $value) | quote }}
{{- end }}
{{- end }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* Helm reads numbers as floats, which it would print as 1e+06. */}}
{{- define "ccm.text" -}}
{{- if kindIs "float64" . }}{{ ternary (int64 .) . (eq (floor .) .) }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* The kubelet asks from the node: on its own network the port may be bound to the loopback address alone. */}}
{{- define "ccm.probe" -}}
scheme: HTTPS
{{- if .Values.hostNetwork }}
host: {{ get (dict "0.0.0.0" "127.0.0.1" "::" "::1") .Values.bindAddress | default .Values.bindAddress | quote }}
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
  {{- include "ccm.annotations" .root }}
  labels:
    {{- include "ccm.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .roleKind }}
  name: {{ .role }}
subjects:
- {{ toYaml .subject | nindent 2 | trim }}
{{- end }}
