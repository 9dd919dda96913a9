"""Server of the ops page: snapshots in, HTTP out. It is read-only without a token; `Answers` give data outside snapshots."""
