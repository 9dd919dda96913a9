"""Consumer groups: mirrored offsets, states and rewinds."""
