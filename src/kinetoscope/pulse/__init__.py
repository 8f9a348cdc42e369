"""pulse: the per-step log: state and step times of each rank in one small file, always on.

`layout` has its bytes, `pulse_recorder` writes this process's, `pulses` reads those of a run, and `snapshot` the
current state of all ranks.
"""
