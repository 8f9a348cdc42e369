"""Evidence of a run, as rules read it: of each window (`window`), and of the run in parts (`run`)."""
