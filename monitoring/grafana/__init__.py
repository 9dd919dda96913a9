"""Grafana dashboards as code: settings in, classic dashboard JSON and provisioning files out.

Small builders make plain dictionaries, in the order in which Grafana documents them. No SDK is needed to run. Tests compare the
result with the SDK's schema and the rules of Grafana's own dashboard-linter. Every query names a declared metric.
"""
