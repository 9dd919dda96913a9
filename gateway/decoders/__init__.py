"""Payloads to readings: one pure function per format, found by name in `registry`."""
