"""The fast path: good native messages to Kafka records without an object per reading."""
