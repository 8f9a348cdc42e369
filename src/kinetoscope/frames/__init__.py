"""table: traces as polars frames."""
