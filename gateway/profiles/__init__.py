"""Validation profiles: what a device's readings must be. In: decoded readings; out: the same, split, flagged, converted."""
