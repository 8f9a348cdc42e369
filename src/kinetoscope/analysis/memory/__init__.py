"""Allocated memory: categories, growth and owners."""
