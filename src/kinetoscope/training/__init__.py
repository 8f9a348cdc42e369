"""training: what a run is (timestamps, state, events, ranks, attempts, file names). Standard library only."""
