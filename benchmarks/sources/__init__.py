"""benchmarks: what sources cost."""
