"""handlers: what happens to a finished cycle."""
