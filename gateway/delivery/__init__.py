"""Messages to Kafka and back: blocks, the acknowledgement chain and the deliverer that drives it."""
