"""Readers of Kafka records: stretches, browsing, tail and group members."""
