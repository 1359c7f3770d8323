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

{{- define "hearsay.scheme" -}}
{{- if .Values.tls.existingSecret -}}HTTPS{{- else -}}HTTP{{- end -}}
{{- end -}}

{{- define "hearsay.labels" -}}
{{ include "hearsay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end -}}

{{- /* What an ingress passes to a door, as deploy/nginx/hearsay.conf does: calls of devices and their
helpers, probes and pages. Analysts and admins call from inside, and Prometheus scrapes there. */ -}}
{{- define "hearsay.paths" -}}
- /hearsay.v1.Collector/
- /hearsay.v1.Trainer/
- /hearsay.v1.Attestation/
- /hearsay.v1.SealedCollector/
{{- if eq . "grpc" }}
- /grpc.health.v1.Health/
{{- else }}
- /readyz
- /healthz
- /
- /sign-in
- /sign-out
- /asked
- /asked/
- /analyst
- /analyst/
- /operator
- /operator/
- /planner
- /planner/
- /static/
{{- end }}
{{- end -}}
