"""Description of the pipeline's MQTT and Kafka interfaces as AsyncAPI 3.0; in: the settings, out: one document."""
