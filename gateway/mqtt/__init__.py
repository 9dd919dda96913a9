"""The MQTT session: connections, subscriptions, PUBACK, and what the broker says of itself."""
