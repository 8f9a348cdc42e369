"""analysis: what the traces of a run say about it. Pure functions from tables to frozen dataclasses."""
