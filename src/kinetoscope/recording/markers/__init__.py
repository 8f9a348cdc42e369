"""Markers and the recorder of their spans.

`schedule` chooses the action of each batch. `marker` has the markers of a Profiler and of library code,
`marker_decorator` makes each call of a function a span, and `compiler` keeps markers out of torch's graphs.
`native_recorder` records, with the types in `recorder_types`. `process` has the state that a process has once.
"""
