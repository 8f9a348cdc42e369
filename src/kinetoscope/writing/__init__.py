"""writing: the writer thread, processes beside training, and atomic files. Standard library only."""
