"""Reading, merging and caching of trace files."""
