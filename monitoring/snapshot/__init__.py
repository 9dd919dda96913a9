"""What the page shows, from what was scraped: pure functions, in: memory, alerts, side data; out: JSON-ready data."""
