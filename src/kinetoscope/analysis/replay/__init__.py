"""A run, replayed with something changed.

`dependencies` has what waited for what in a window (`device_begins`, `host_waits`, `late_batches`,
`timed_operators`), `late_starts` which ranks were late before it began, and `loader_slack` what the loaders have to
spare that nobody waited for. `replay` joins them over all ranks, `even_loads` evens what ranks compute; `what_if` is a
step with a change, `critical_path` what a step waited for.
"""
