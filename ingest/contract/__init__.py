"""Contract of the hops: record, dead letter, outcome, topics, reasons, errors. Stdlib, pydantic and msgspec only."""
