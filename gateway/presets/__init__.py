"""Shipped formats as data: one TOML file each, written as a user would write it in the settings (see `load`)."""
