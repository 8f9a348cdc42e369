"""pulse: what each rank is doing now, and how long each of its steps took: one small file per rank, always on.

`layout` has its bytes, `own_pulse` writes this process's, `pulses` reads those of a run, and `glances` what is new in
them.
"""
