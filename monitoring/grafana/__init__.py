"""Grafana dashboards as code: settings in, classic dashboard JSON and provisioning files out.

Plain dictionaries made by small builders, in the order Grafana documents them; no SDK is needed to run, tests hold the result
against the SDK's schema and the rules of Grafana's own dashboard-linter. Every query names a declared metric.
"""
