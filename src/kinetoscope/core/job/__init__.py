"""job: what a run is. Timestamps, state, events, ranks and their attempts, and the names of its files."""
