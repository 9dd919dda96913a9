"""Leases of gateways in Kafka: which gateways run, which of them conflict, and which process of a pair works."""
