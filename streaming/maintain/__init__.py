"""Tables that keep themselves: joins, checkpoints, vacuum and retention, by the process that writes the tables."""
