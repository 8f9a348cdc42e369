"""clock: nanoseconds, and how they relate to unix time. Standard library only."""
