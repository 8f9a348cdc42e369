"""benchmarks: the same trainings under TraceML and under our profiler."""
