"""Checks of `tidegate doctor` for production: settings in, findings with their next step out. They change nothing that stays."""
