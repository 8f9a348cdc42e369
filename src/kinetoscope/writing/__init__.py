"""writing: the writer thread and atomic files. Standard library only."""
