"""benchmarks: what Kinetoscope costs, beside its peers, in ratios. `python -m benchmarks` runs every suite."""
