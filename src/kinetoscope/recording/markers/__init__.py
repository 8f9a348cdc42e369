"""markers: what a marker records and when. `schedule` chooses actions, `marker` and `marked_function` record into the
`recorder`, which `native_recorder` has in C; `compiler` keeps them out of graphs, and `process` has what exists once.
"""
