"""Faults to watch: a part of a running pipeline hangs or crashes, alerts fire and resolve, the audit balances."""
