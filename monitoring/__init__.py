"""Beside every hop: the metrics, declared once, and the exporter of one process."""
