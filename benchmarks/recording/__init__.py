"""Costs of recording: a marker, a training loop full of markers, a skipped batch."""
