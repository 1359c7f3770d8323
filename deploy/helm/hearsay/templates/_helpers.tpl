{{- define "hearsay.name" -}}
{{- if contains "hearsay" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-hearsay" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "hearsay.selector" -}}
app.kubernetes.io/name: hearsay
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "hearsay.labels" -}}
{{ include "hearsay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}
