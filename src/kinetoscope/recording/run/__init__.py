"""run: a run from its start to its end. `loop` follows the training.

`lifecycle` starts and ends the run, by `shutdown`; `window_controller` opens its windows, within the loop's `scopes`.
`services` are its parts: `delivery`, `clock_comparison` and more. `plugin_api` is what sources and handlers get.
`counted_steps` and `fetch_watch` are the fast path of `loop` and its waits; `batch` is its current step.
"""
