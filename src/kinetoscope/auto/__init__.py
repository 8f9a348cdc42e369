"""auto: records a training that knows nothing of us. ``import kinetoscope.auto`` is all it takes, and `kinetoscope run`
does that for any command.

The profiler begins at the process's first step of a torch optimizer, so processes that never take one stay as they are.
`injected/sitecustomize.py` is Python's way in, `settings` what was asked for, `step_rule` says when a step ends, and
`unmodified` begins and ends the profiler.
"""

from kinetoscope.auto.unmodified import watch_process

watch_process()
