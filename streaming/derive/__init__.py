"""Derived tables: rollups, latest, ledger and devices, from committed versions of the hot path's tables, each exactly once."""
