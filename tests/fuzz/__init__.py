"""Fuzzing of decoders and presets, for `make chaos`."""
