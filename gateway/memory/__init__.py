"""What a gateway remembers of itself and of its devices in Kafka, over restarts."""
