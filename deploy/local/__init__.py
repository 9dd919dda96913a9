"""The embedded run: a real broker, Kafka, gateway and Spark on one machine, supervised."""
