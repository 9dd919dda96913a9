"""Grafana dashboards as JSON files, and their export: in: settings; out: dashboards, provisioning, a README.

The files in `dashboards/` are Grafana's own form (schema 39). Placeholders such as `<<freshness_seconds>>` take the place of
settings. Tests compare the files with the schema of Grafana's SDK and with the rules of Grafana's dashboard-linter. Every query
names a declared metric.
"""
