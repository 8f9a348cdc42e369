"""kinetoscope.torch compared with torch.profiler, with the same work in the same run."""
