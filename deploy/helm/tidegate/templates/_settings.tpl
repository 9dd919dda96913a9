{{- /*
The settings of one part as JSON: those of the release, then those of the part, then what the chart decides.
Takes root, component, and for a gateway member and index.
*/ -}}
{{- define "tidegate.settings" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $settings := deepCopy $root.Values.settings -}}
{{- $layers := list (index $root.Values $component).settings -}}
{{- with .member }}{{ $layers = append $layers (.settings | default dict) }}{{ end -}}
{{- $layers = append $layers (include "tidegate.ownSettings" . | fromJson) -}}
{{- $layers = append $layers (include "tidegate.secretFiles" . | fromJson) -}}
{{- range $layer := $layers -}}
{{- range $section, $body := $layer -}}
{{- /* Not mergeOverwrite: a false or an empty list must also replace what was there. */ -}}
{{- if kindIs "map" $body -}}
{{- $merged := get $settings $section | default dict -}}
{{- range $name, $value := $body }}{{ $_ := set $merged $name $value }}{{ end -}}
{{- $_ := set $settings $section $merged -}}
{{- else -}}
{{- $_ := set $settings $section $body -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson $settings }}
{{- end -}}

{{- /* What the chart decides. */ -}}
{{- define "tidegate.ownSettings" -}}
{{- $root := .root -}}
{{- $name := include "tidegate.fullname" $root -}}
{{- $given := $root.Values.settings.monitoring | default dict -}}
{{- $monitoring := dict "metrics_host" $root.Values.listenHost -}}
{{- if eq .component "monitor" -}}
{{- $targets := deepCopy ((index $root.Values .component "settings" "monitoring" | default dict).targets | default $given.targets | default dict) -}}
{{- $gateways := list -}}
{{- range $index, $_ := $root.Values.gateway.members -}}
{{- $gateways = append $gateways (printf "%s-gateway-%d.%s-gateway:%d" $name $index $name (include "tidegate.port" (dict "root" $root "component" "gateway") | int)) -}}
{{- end -}}
{{- $_ := set $targets "gateway" ($root.Values.gateway.enabled | ternary $gateways list) -}}
{{- range $part := list "stream" "canary" -}}
{{- $port := include "tidegate.port" (dict "root" $root "component" $part) | int -}}
{{- $_ := set $targets $part ((index $root.Values $part).enabled | ternary (list (printf "%s-%s:%d" $name $part $port)) list) -}}
{{- end -}}
{{- $jmx := include "tidegate.jmxPort" $root | int -}}
{{- if and $jmx $root.Values.stream.enabled }}{{ $_ := set $targets "spark" (list (printf "%s-stream:%d" $name $jmx)) }}{{ end -}}
{{- $_ := set $monitoring "host" $root.Values.listenHost -}}
{{- $_ := set $monitoring "targets" $targets -}}
{{- end -}}
{{- $own := dict "monitoring" $monitoring -}}
{{- with .member -}}
{{- $_ := set $own "gateway" (dict "gateway_id" .id) -}}
{{- $_ := set $own "mqtt" (dict "client_id" .clientId "subscriptions" .subscriptions "session_file" "/var/lib/tidegate-state/session.json") -}}
{{- end -}}
{{ toJson $own }}
{{- end -}}

{{- /* The port of a part's /metrics, or of the page. */ -}}
{{- define "tidegate.port" -}}
{{- $defaults := dict "gateway" 9471 "stream" 9472 "canary" 9473 "monitor" 9470 -}}
{{- $setting := eq .component "monitor" | ternary "page_port" (printf "%s_port" .component) -}}
{{- $own := get ((index .root.Values .component).settings.monitoring | default dict) $setting -}}
{{- $common := get (.root.Values.settings.monitoring | default dict) $setting -}}
{{- $port := $own | default $common | default (get $defaults .component) | int -}}
{{- $port -}}
{{- end -}}

{{- /* The port of the JMX agent in Spark's driver; 0: none. */ -}}
{{- define "tidegate.jmxPort" -}}
{{- $own := get (.Values.stream.settings.monitoring | default dict) "spark_jmx_port" -}}
{{- $own | default (get (.Values.settings.monitoring | default dict) "spark_jmx_port") | default 0 | int -}}
{{- end -}}

{{- /* Spark's master. */ -}}
{{- define "tidegate.master" -}}
{{- $own := get (.Values.stream.settings.stream | default dict) "master" -}}
{{- $own | default (get (.Values.settings.stream | default dict) "master") | default "local[2]" -}}
{{- end -}}

{{- /* "true" if tables or checkpoint are in a folder, so that a volume is needed. */ -}}
{{- define "tidegate.needsVolume" -}}
{{- $settings := include "tidegate.settings" (dict "root" . "component" "stream") | fromJson -}}
{{- $folders := list -}}
{{- range $place := list (get ($settings.lake | default dict) "root" | default "/") (get ($settings.stream | default dict) "checkpoint" | default "/") -}}
{{- if or (not (contains "://" $place)) (hasPrefix "file:" $place) }}{{ $folders = append $folders $place }}{{ end -}}
{{- end -}}
{{- if $folders }}true{{ end -}}
{{- end -}}

{{- /*
"true" if a condition of strimzi.users.list[].aclsIf holds: creates (nobody else creates the topics), receipts (the gateway sends
receipts of stored messages), redrive (the page has a login for writers). Takes root and condition.
*/ -}}
{{- define "tidegate.holds" -}}
{{- $root := .root -}}
{{- $holds := false -}}
{{- if eq .condition "creates" -}}
{{- $holds = not $root.Values.strimzi.topics.enabled -}}
{{- else if eq .condition "redrive" -}}
{{- $settings := include "tidegate.settings" (dict "root" $root "component" "monitor") | fromJson -}}
{{- $page := get $settings "monitoring" | default dict -}}
{{- $holds = or $page.page_token_file $page.proxy_write_users | empty | not -}}
{{- else if eq .condition "receipts" -}}
{{- range $index, $member := $root.Values.gateway.members -}}
{{- $settings := include "tidegate.settings" (dict "root" $root "component" "gateway" "member" $member "index" $index) | fromJson -}}
{{- $receipts := get $settings "receipts" | default dict -}}
{{- if and $receipts.positive (ne (toString $receipts.enabled) "false") }}{{ $holds = true }}{{ end -}}
{{- end -}}
{{- end -}}
{{ $holds }}
{{- end -}}

{{- /* The sections whose secrets a part needs. */ -}}
{{- define "tidegate.sections" -}}
{{- get (dict "gateway" (list "mqtt" "gateway" "kafka") "stream" (list "kafka" "stream" "lake") "monitor" (list "mqtt" "kafka" "lake" "monitoring") "canary" (list "mqtt" "lake")) .component | toJson -}}
{{- end -}}

{{- /* The secrets of a part as JSON: a list of section, setting, name, key. */ -}}
{{- define "tidegate.secrets" -}}
{{- $sections := include "tidegate.sections" . | fromJsonArray -}}
{{- $merged := dict -}}
{{- range $layer := list .root.Values.secrets (index .root.Values .component).secrets -}}
{{- range $section, $entries := $layer -}}
{{- if has $section $sections -}}
{{- range $setting, $place := $entries -}}
{{- $_ := set $merged (printf "%s.%s" $section $setting) (dict "section" $section "setting" $setting "name" $place.name "key" $place.key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $found := list -}}
{{- range $name := keys $merged | sortAlpha }}{{ $found = append $found (get $merged $name) }}{{ end -}}
{{ toJson $found }}
{{- end -}}

{{- /* The settings that name mounted secrets. */ -}}
{{- define "tidegate.secretFiles" -}}
{{- $found := dict -}}
{{- range include "tidegate.secrets" . | fromJsonArray -}}
{{- if hasSuffix "_file" .setting -}}
{{- $section := get $found .section | default dict -}}
{{- $_ := set $section .setting (printf "/etc/tidegate/secrets/%s/%s/%s" .section .setting .key) -}}
{{- $_ := set $found .section $section -}}
{{- end -}}
{{- end -}}
{{ toJson $found }}
{{- end -}}
