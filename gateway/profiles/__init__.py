"""Validation profiles: rules for a device's readings. In: decoded readings; out: the same, split, flagged, converted."""
