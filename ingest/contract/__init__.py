"""What the hops agree on: record, dead letter, outcome, topics, reasons, errors. Stdlib, pydantic and msgspec only."""
