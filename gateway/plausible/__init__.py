"""Numbers that no sensor measured: error codes and impossible values, as a table (`entries.toml`)."""
