"""Dead letters for people: found in the table, explained, redriven; in from Delta, out to Kafka and a journal."""
