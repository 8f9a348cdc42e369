"""Comparison of two runs.

`compare` returns a `comparison`, with a row per value. `series` has the values by step, `typical_values` estimates
each, and `confidence_intervals` its change. `all_steps_change` compares the step times of all steps.
"""
