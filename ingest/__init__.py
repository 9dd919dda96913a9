"""Hop 2: the Kafka log. Producer, topics, consumer-group offsets, and the contract that the hops share."""
