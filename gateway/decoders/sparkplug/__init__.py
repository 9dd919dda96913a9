"""Sparkplug B: payloads, births and readings."""
