"""Recording of unmodified training scripts, for `kinetoscope run` and ``import kinetoscope.auto``.

The profiler starts at the process's first step of a torch optimizer, so a process without one is not changed.
`bootstrap/sitecustomize.py` is loaded by Python at its start, and `settings` are passed in the environment.
`training_detector` finds the first steps, `step_rule` the end of each step, `evaluation_rule` the evaluations.
`instrumentation` starts and ends the profiler, and `unrecorded` reports a command without one. `trial` is one start of
`kinetoscope try`, and `process_group` ends its processes.
"""
