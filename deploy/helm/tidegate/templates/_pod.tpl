{{- /*
Template of a part's pod. Takes root, component, args, and hash: the settings whose change needs a new pod.
*/ -}}
{{- define "tidegate.pod" -}}
{{- $root := .root -}}
{{- $component := .component -}}
{{- $values := index $root.Values $component -}}
{{- $isMonitor := eq $component "monitor" -}}
{{- $readsTables := has $component (list "stream" "monitor" "canary") -}}
{{- $volume := and $readsTables (eq (include "tidegate.needsVolume" $root) "true") -}}
{{- $onKubernetes := and (eq $component "stream") (hasPrefix "k8s://" (include "tidegate.master" $root)) -}}
{{- $secrets := include "tidegate.secrets" . | fromJsonArray -}}
metadata:
  labels:
    {{- include "tidegate.selector" . | nindent 4 }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/settings: {{ .hash | sha256sum }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "tidegate.serviceAccount" $root }}
  automountServiceAccountToken: {{ $onKubernetes }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
  {{- with $root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: {{ int64 $root.Values.podSecurityContext.runAsUser }}
    runAsGroup: {{ int64 $root.Values.podSecurityContext.runAsGroup }}
    fsGroup: {{ int64 $root.Values.podSecurityContext.fsGroup }}
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: RuntimeDefault
  {{- $together := and $volume (ne $component "stream") $root.Values.stream.enabled (eq $root.Values.storage.accessMode "ReadWriteOnce") }}
  {{- if or $together $values.affinity }}
  affinity:
    {{- $affinity := deepCopy $values.affinity }}
    {{- if $together }}
    {{- /* One node mounts the volume: that of the stream. */}}
    {{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "tidegate.selector" (dict "root" $root "component" "stream") | fromYaml)) }}
    {{- $pods := get $affinity "podAffinity" | default dict }}
    {{- $required := get $pods "requiredDuringSchedulingIgnoredDuringExecution" | default list }}
    {{- $_ := set $pods "requiredDuringSchedulingIgnoredDuringExecution" (append $required $term) }}
    {{- $_ := set $affinity "podAffinity" $pods }}
    {{- end }}
    {{- toYaml $affinity | nindent 4 }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- /* Without a selector a constraint counts no pod. */}}
    {{- $own := dict "labelSelector" (dict "matchLabels" (include "tidegate.selector" (dict "root" $root "component" $component) | fromYaml)) }}
    {{- range . }}
    - {{- hasKey . "labelSelector" | ternary . (merge (deepCopy .) $own) | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ $component }}
      image: {{ include "tidegate.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      command: [tidegate]
      args: {{ toJson .args }}
      {{- if eq $component "stream" }}
      workingDir: {{ $volume | ternary "/var/lib/tidegate" "/tmp" }}
      {{- end }}
      securityContext:
        {{- include "tidegate.containerSecurity" $root | nindent 8 }}
      env:
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- if $onKubernetes }}
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        - name: TIDEGATE_STREAM__EXTRA
          value: {{ include "tidegate.sparkSettings" $root | quote }}
        {{- end }}
        {{- include "tidegate.secretEnv" $secrets | nindent 8 }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - name: {{ $isMonitor | ternary "page" "metrics" }}
          containerPort: {{ include "tidegate.port" . | int }}
        {{- if eq $component "stream" }}
        {{- with include "tidegate.jmxPort" $root | int }}
        - name: jmx
          containerPort: {{ . }}
        {{- end }}
        {{- if $onKubernetes }}
        - name: driver
          containerPort: 7078
        - name: blocks
          containerPort: 7079
        {{- end }}
        {{- end }}
      {{- $port := $isMonitor | ternary "page" "metrics" }}
      {{- /* A restart helps a part that hangs, and none that waits for a server. The monitor waits for nothing. */}}
      {{- $alive := $isMonitor | ternary "/healthz" "/livez" }}
      startupProbe:
        httpGet: {path: {{ $alive }}, port: {{ $port }}}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: {{ $alive }}, port: {{ $port }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /healthz, port: {{ $port }}}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 3
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        {{- if $isMonitor }}
        - {name: state, mountPath: /var/lib/tidegate-state}
        # The monitor keeps the finding of its audit next to its settings.
        - {name: settings, mountPath: /var/lib/tidegate-state/tidegate.toml, subPath: tidegate.toml, readOnly: true}
        {{- else }}
        - {name: settings, mountPath: /etc/tidegate/settings, readOnly: true}
        {{- end }}
        {{- if eq $component "gateway" }}
        - {name: state, mountPath: /var/lib/tidegate-state}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        {{- if eq $component "stream" }}
        - {name: logs, mountPath: /var/log/tidegate}
        {{- end }}
        {{- if $volume }}
        - {name: data, mountPath: /var/lib/tidegate{{ if eq $component "canary" }}, readOnly: true{{ end }}}
        {{- end }}
        {{- include "tidegate.secretMounts" $secrets | nindent 8 }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: settings
      configMap:
        name: {{ include "tidegate.fullname" $root }}-{{ $component }}
    - name: tmp
      emptyDir: {sizeLimit: {{ $root.Values.storage.temporarySize }}}
    {{- if eq $component "stream" }}
    - name: logs
      emptyDir: {sizeLimit: 256Mi}
    {{- end }}
    {{- if eq $component "gateway" }}
    - name: state
      emptyDir: {sizeLimit: 16Mi}
    {{- end }}
    {{- if $isMonitor }}
    - name: state
      {{- if $values.persistence.enabled }}
      persistentVolumeClaim:
        claimName: {{ $values.persistence.existingClaim | default (printf "%s-monitor" (include "tidegate.fullname" $root)) }}
      {{- else }}
      emptyDir: {sizeLimit: 64Mi}
      {{- end }}
    {{- end }}
    {{- if $volume }}
    - name: data
      persistentVolumeClaim:
        claimName: {{ $root.Values.storage.existingClaim | default (include "tidegate.fullname" $root) }}
    {{- end }}
    {{- include "tidegate.secretVolumes" $secrets | nindent 4 }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "tidegate.containerSecurity" -}}
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* Variables, mounts and volumes for the secrets of a part. */ -}}
{{- define "tidegate.secretEnv" -}}
{{- range . }}
{{- if not (hasSuffix "_file" .setting) }}
- name: TIDEGATE_{{ upper .section }}__{{ upper .setting }}
  valueFrom:
    secretKeyRef:
      name: {{ .name }}
      key: {{ .key | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tidegate.secretMounts" -}}
{{- range . }}
{{- if hasSuffix "_file" .setting }}
- {name: {{ include "tidegate.secretVolume" . }}, mountPath: /etc/tidegate/secrets/{{ .section }}/{{ .setting }}, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tidegate.secretVolumes" -}}
{{- range . }}
{{- if hasSuffix "_file" .setting }}
- name: {{ include "tidegate.secretVolume" . }}
  secret:
    secretName: {{ .name }}
    defaultMode: 0440
    items:
      - {key: {{ .key | quote }}, path: {{ .key | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tidegate.secretVolume" -}}
{{ printf "secret-%s-%s" .section .setting | replace "_" "-" }}
{{- end -}}

{{- /* Spark's settings for executors in pods, with those of the part. Kubernetes fills in $(POD_NAME) and $(POD_IP). */ -}}
{{- define "tidegate.sparkSettings" -}}
{{- $executors := .Values.stream.executors -}}
{{- $settings := include "tidegate.settings" (dict "root" . "component" "stream") | fromJson -}}
{{- $spark := dict
  "spark.driver.host" "$(POD_IP)"
  "spark.driver.port" "7078"
  "spark.driver.blockManager.port" "7079"
  "spark.kubernetes.driver.pod.name" "$(POD_NAME)"
  "spark.kubernetes.namespace" .Release.Namespace
  "spark.kubernetes.authenticate.serviceAccountName" (include "tidegate.serviceAccount" .)
  "spark.kubernetes.container.image" $executors.image
  "spark.kubernetes.executor.podTemplateFile" "/etc/tidegate/settings/executor.yaml"
  "spark.executor.instances" (toString (int $executors.instances))
  "spark.executor.cores" (toString (int $executors.cores))
  "spark.executor.memory" $executors.memory
  "spark.kubernetes.executor.label.app.kubernetes.io/instance" .Release.Name
-}}
{{- range $name, $value := (get ($settings.stream | default dict) "extra" | default dict) }}{{ $_ := set $spark $name $value }}{{ end -}}
{{ toJson $spark }}
{{- end -}}

{{- /* The pod of an executor, as Spark fills it: without rights, and without a token of Kubernetes. */ -}}
{{- define "tidegate.executor" -}}
apiVersion: v1
kind: Pod
spec:
  automountServiceAccountToken: false
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: {{ int64 .Values.stream.executors.runAsUser }}
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: executor
      securityContext:
        runAsNonRoot: true
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
{{- end -}}
