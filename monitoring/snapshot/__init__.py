"""Snapshots for the page. Pure functions: memory of scrapes, alerts and side data in, JSON-ready data out."""
