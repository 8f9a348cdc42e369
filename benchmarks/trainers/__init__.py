"""benchmarks: our integrations beside the trainers' own profilers."""
