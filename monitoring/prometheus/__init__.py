"""Configuration for a Prometheus and an Alertmanager outside of the embedded run."""
