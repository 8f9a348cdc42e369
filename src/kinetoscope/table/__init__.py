"""table: traces as columns. Files of any shape flow in; polars frames flow out."""
