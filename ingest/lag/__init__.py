"""Lag of consumer groups: in records, in seconds, and until data loss."""
