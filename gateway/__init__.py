"""Hop 1: MQTT messages in, validated readings or dead letters out to Kafka; PUBACK only after Kafka has them."""
