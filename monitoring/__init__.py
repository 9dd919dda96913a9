"""Monitoring of every hop: the metrics, each declared once, and the exporter of one process."""
