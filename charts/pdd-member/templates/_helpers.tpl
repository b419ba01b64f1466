{{- define "pdd-member.namespace" -}}
{{- if .Values.namespace.create -}}
{{- required "namespace.name: empty: name the namespace to make, or set namespace.create=false and use -n NAME --create-namespace" .Values.namespace.name -}}
{{- else -}}
{{- default .Release.Namespace .Values.namespace.name -}}
{{- end -}}
{{- end -}}

{{- define "pdd-member.labels" -}}
app.kubernetes.io/name: pdd-member
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: pdd
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* Cluster-wide names: unique for each namespace that is granted. */}}
{{- define "pdd-member.clusterName" -}}
{{- printf "pdd-member-%s" (include "pdd-member.namespace" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
