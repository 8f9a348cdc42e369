"""A run from its start to its end, and the plain training loop.

`lifecycle` starts the run and ends it, by `shutdown`; `window_controller` opens its windows, within the loop's
`scopes`. `services` are its parts: `delivery`, `clock_comparison` and more. `plugin_api` is the API for sources and
handlers. `loop` is the plain loop; `counted_steps` and `fetch_watch` are its fast path and its waits, `batch` is its
current step.
"""
