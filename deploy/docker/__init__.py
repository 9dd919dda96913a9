"""One container image for all parts: its Dockerfile, the health check that runs in it, and what it leaves out, with reasons."""
