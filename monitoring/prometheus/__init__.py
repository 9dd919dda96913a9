"""What a Prometheus and an Alertmanager of one's own read to watch Tidegate."""
