"""Decoders that are described in TOML: a mapping's settings, and the engine that applies them."""
