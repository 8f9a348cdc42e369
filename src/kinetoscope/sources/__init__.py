"""sources: what fills a cycle by itself."""
