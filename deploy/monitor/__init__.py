"""`tidegate monitor`: checks all parts, judges, and serves the ops page. It only reads, except for redrives by a person."""
