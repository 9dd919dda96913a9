"""Composition root: command line, settings, the embedded run, benchmarks. Imported by nobody."""
