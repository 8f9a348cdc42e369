"""benchmarks of the room recording: what a marker, a training loop full of markers and a skipped batch cost."""
