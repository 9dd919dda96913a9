"""Alerts as data: one definition gives the rule for Prometheus and the check that the monitor makes by itself.

In: the monitoring settings, and for the built-in check a `History`. Out: rule files, an Alertmanager configuration, the states of
the alerts. Guarantee: both readings of a signal agree (a test drives the same series through real promtool), except for the burn
of an error budget over hours, which only Prometheus can see.
"""
