"""Server of the ops page: snapshots in, HTTP out. It is read-only without a token and calls `Answers` for data outside snapshots."""
