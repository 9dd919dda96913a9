"""Load on Kafka: producers and consumers as processes of their own, and the figures of one run."""
