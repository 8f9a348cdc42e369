"""Modules, programs and tools that tests share."""
