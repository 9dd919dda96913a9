"""`tidegate trace`: what became of a device's last messages, hop by hop, from the tables, their logs and Kafka itself."""
