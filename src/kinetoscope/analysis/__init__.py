"""Results of analyses of a run: pure functions from frames to frozen dataclasses.

`analyze` joins the summaries of all traces (`summaries`), after `run_checks` has checked that they are of one run.

A window of a rank (`windows`) has the spans of threads and devices; `cpu.loop.TrainingLoop` has what its loop did, by
subject. From both come the rows on steps, operators, kernels and memory, the graph that `replay` changes, and the
evidence of `findings`. `report_cache` keeps a `run_report`.
"""
