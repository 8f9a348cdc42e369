"""Costs of this tree compared with those of an older commit, measured in turns in one run."""
