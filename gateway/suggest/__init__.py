"""Draft of a route from real messages. In: topics and payloads; out: settings for a person to use. Pure, no I/O."""
