"""unmodified: records a training that knows nothing of us, for `kinetoscope run` and ``import kinetoscope.auto``.

The profiler begins at the process's first step of a torch optimizer, so processes that never take one stay as they are.
`bootstrap/sitecustomize.py` is Python's way in, `settings` what was asked for, `step_rule` says when a step ends and
`evaluation_rule` what is an evaluation; `training` begins and ends the profiler.
"""
