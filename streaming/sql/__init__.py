"""Streams defined by SQL files: each reads `readings` (or another stream) from Kafka and writes a topic, a table or both."""
