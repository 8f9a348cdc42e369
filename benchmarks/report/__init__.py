"""benchmarks: the page of a report."""
