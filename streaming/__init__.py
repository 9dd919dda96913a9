"""Hop 3: Kafka topics in, Delta tables out, exactly once, by PySpark Structured Streaming."""
