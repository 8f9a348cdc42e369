"""Profiling windows: a window and its `cycle`, its consumers, and triggers of unplanned windows.

`trace_handler` is the base of handlers; `callbacks`, `guard` and `event_listeners` call them. `source_events` are spans
of sources, and `run_redaction` redacts strings. `triggered_window` opens a window for `on_demand`; `slow_step_watch`
and `slow_step_quota` keep outlier steps; `memory_limit` ends a window early. `trace_folder` and `launch_folder` name
folders.
"""
