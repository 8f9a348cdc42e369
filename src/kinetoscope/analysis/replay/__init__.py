"""Replay of a run with a change.

`dependencies` builds the graph of one window from `device_starts`, `host_waits`, `delayed_batches` and
`operator_intervals`. `replay` joins the graphs of all ranks. `initial_lateness` handles ranks that were late before the
recording, `loader_slack` loaders that no loop waited for, and `load_balancing` ranks with unequal work. `critical_path`
returns the spans that limit the run.
"""
