"""Load on an MQTT broker: publishers and a subscriber as processes of their own, and the figures of one run."""
