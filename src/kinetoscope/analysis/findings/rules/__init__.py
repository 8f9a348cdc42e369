"""Rules for findings: a module per kind, ``KIND.py``, and its page, ``KIND.md``."""
