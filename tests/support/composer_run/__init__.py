"""tests: a small run with Composer's real Trainer, and readers of its traces."""
