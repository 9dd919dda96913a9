"""One HTML file of results that opens without a network: figures next to the baselines, and charts by uPlot."""
