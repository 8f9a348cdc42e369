"""Compares our numbers with those of HolisticTraceAnalysis (HTA), under its own rules.

HTA rounds all times to whole microseconds, drops the last step, and counts a few things as device work that are none.
`reading` writes a trace as HTA reads it, for us, and one without what HTA miscounts, for both. `hta_numbers` has the
results of HTA, and `our_numbers` the same from our frames. docs/compat/hta.md has the differences.
"""
