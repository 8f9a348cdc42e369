"""Costs of Kinetoscope and other profilers, as ratios. `python -m benchmarks` runs every suite."""
