{{- /* Settings as TOML. Lists come first, since a table takes all lines that follow it. */ -}}
{{- define "tidegate.toml" -}}
{{- range $name, $value := . -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) -}}
{{ toJson $name }} = {{ include "tidegate.inline" $value }}
{{ end -}}
{{- end -}}
{{- range $section, $body := . -}}
{{- if kindIs "map" $body }}
[{{ toJson $section }}]
{{ range $name, $value := $body -}}
{{- if not (kindIs "invalid" $value) -}}
{{ toJson $name }} = {{ include "tidegate.inline" $value }}
{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* One value on one line. JSON's scalars are TOML's. */ -}}
{{- define "tidegate.inline" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $name, $value := . -}}
{{- if not (kindIs "invalid" $value) }}{{ $pairs = append $pairs (printf "%s = %s" (toJson $name) (include "tidegate.inline" $value)) }}{{ end -}}
{{- end -}}
{ {{ join ", " $pairs }} }
{{- else if kindIs "slice" . -}}
{{- $items := list -}}
{{- range $value := . }}{{ $items = append $items (include "tidegate.inline" $value) }}{{ end -}}
[{{ join ", " $items }}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end -}}
