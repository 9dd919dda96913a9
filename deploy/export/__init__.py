"""Files with which a pipeline runs under systemd or Docker Compose; in: the settings, out: texts of files without any secret."""
