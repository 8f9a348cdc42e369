"""benchmarks: what it costs to say where the time of a run went."""
