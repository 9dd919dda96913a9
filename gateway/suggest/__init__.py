"""Draft of a route from real messages. In: topics and payloads; out: settings that a person can take over. Pure, no I/O."""
