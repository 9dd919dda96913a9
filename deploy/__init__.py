"""Composition root: command line, settings, the embedded run, benchmarks. No other package imports it."""
