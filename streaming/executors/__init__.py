"""Check of a batch for copies on executors; in: written files, out: the rows that stay. No row comes to the driver."""
