"""SenML in JSON and CBOR."""
