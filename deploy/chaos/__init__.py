"""Faults on purpose: own broker, Kafka and gateway under load, one thing broken, then every message accounted for."""
