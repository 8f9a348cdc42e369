"""handlers: consumers of a finished cycle."""
