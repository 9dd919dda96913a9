"""Scenarios as data: a TOML file names workloads, targets and goals; a run measures each cell and judges it.

In: scenario files and a Kafka, ours or an existing one. Out: one JSON result a scenario and one HTML report. Only topics with
the prefix `tidegate-bench-` are written, and they are removed afterwards.
"""
