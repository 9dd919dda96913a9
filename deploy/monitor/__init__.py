"""`tidegate monitor`: looks at all parts, judges, and serves the ops page. Reads only; what it redrives, a person asked for."""
