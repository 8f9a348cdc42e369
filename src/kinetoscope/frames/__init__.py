"""Traces as polars frames."""
