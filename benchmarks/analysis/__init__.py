"""Costs of the analysis of a run."""
