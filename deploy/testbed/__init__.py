"""Servers for benchmarks, faults and tests: each in a process, a folder and on ports of its own, ended by process id."""
