"""History changed on purpose: rows of one device corrected, or the device erased; each table in one Delta transaction."""
