"""report: what an analysis found, for people to read."""
