"""Recording of a run inside the training process, from its markers to its end.

`markers` records spans, `window` makes cycles of them, `hangs` monitors the training thread, `messages` prints for
people, and `run` starts and ends a run. Each package imports only those before it. `profiler` and `driver` come last.
"""
