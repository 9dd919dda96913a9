"""The Helm chart of a pipeline; in: the settings, out: the files of a chart without any secret. `tidegate/` is its source."""
