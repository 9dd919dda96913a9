"""Alerts as data: one definition gives the rule for Prometheus and the monitor's own check.

In: the monitoring settings, and for the built-in check a `History`. Out: rule files, an Alertmanager configuration, the states of
the alerts. Guarantee: the rule and the check agree (a test feeds the same series to the real promtool), except for the burn
of an error budget over hours, which only Prometheus can calculate.
"""
