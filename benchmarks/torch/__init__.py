"""benchmarks: kinetoscope.torch beside torch.profiler, the same work in the same run."""
