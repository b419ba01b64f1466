{{- define "pdd-operator.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "pdd-operator.selector" -}}
app.kubernetes.io/name: pdd-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "pdd-operator.labels" -}}
{{ include "pdd-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: pdd
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "pdd-operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "pdd-operator.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: empty: name an existing ServiceAccount, or set serviceAccount.create=true" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Call with a list: the root, and the name of an image. */}}
{{- define "pdd-operator.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
{{- printf "%s:%s" $image.repository (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}

{{/* Rights in a namespace: what the controller reads and applies. */}}
{{- define "pdd-operator.rules" -}}
- apiGroups: [pdd.dev]
  resources: [pdddeployments, pddlinks]
  verbs: [get, list, watch, patch]
- apiGroups: [pdd.dev]
  resources: [pdddeployments/status, pddlinks/status]
  verbs: [get, patch]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, secrets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
