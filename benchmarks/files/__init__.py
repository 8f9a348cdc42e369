"""benchmarks: reading, merging and keeping trace files."""
