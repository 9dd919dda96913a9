"""Performance framework: real load through real parts, figures as JSON with the hardware and the versions."""
