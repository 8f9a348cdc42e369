"""Hostile run folders, made at random from a seed, and a run of all commands on them."""
