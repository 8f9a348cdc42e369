"""A run, replayed with something changed."""
