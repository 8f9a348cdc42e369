"""Costs of sources."""
