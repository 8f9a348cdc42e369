"""benchmarks: the Composer face, in Composer's real Trainer."""
