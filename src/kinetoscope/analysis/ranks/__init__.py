"""Ranks: collectives, the common clock, stragglers, and CPU contention."""
