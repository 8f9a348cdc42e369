"""formats: one file per file format, reader and writer side by side."""
