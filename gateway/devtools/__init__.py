"""Tools for people who work with devices: simulator, publishers, `decode`, `route test`."""
