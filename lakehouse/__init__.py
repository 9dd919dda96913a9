"""Hop 4: the Delta tables and the analyst: table definitions, Spark session, SQL without a JVM."""
