"""benchmarks: what Kinetoscope and other profilers cost, as ratios. `python -m benchmarks` runs every suite."""
