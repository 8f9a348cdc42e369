"""window: a profiling window and its `cycle`, the handlers and sources that get it, and what opens one unplanned.

`trace_handler` is the base of handlers, `callbacks`, `guard` and `event_listeners` call them, `source_events` are their
additions, and `run_redaction` hides strings. `triggered_window` opens a window for `on_demand`; `slow_step_watch` and
`slow_step_places` keep slow steps; `memory_limit` ends a window early. `trace_folder` and `launch_folder` name folders.
"""
