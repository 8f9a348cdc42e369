"""sources: what records into a cycle by itself, without markers."""
