"""A soak: the whole pipeline under load for hours, in a folder of its own; in: rate and time, out: slopes and a verdict."""
