"""Size of a pipeline for a fleet, computed from measured costs and from the limits in the code; in: a fleet, out: a page."""
