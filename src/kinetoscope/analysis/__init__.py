"""analysis: what the traces of a run say about it. Pure functions from tables to frozen dataclasses.

`analyze` joins what `summaries` sums up of each trace, after `one_run` has seen that they belong together.

One window of one rank: `window` sorts what was recorded in it; `communication` knows the kernels of communication
libraries, `host_time` what the threads did, `loop_states` whether the loop's ran, was blocked or had no processor,
`phases` in which phase of a step it was, `library_calls` the function of a trainer that takes the time.

A step: `step_time` has the rule for its time, `step_parts` its two ledgers, `host_ledger` the host's (`host_parts`:
the run's). `loop_counts` are the samples and tokens that a loop counts, `periods` what comes every n-th step.

Operators and kernels: `call_times` are sums of calls that add up over ranks, in batches (`call_sums`) that travel
compressed (`packing`); `by_step` has their times in each step. `flops` is what operators compute and how fast
(`flop_formulas` from shapes, beside `device_peaks`), `step_work` that of each step, beside all `product_kernels`.

All ranks: `common_clock` puts them on one clock, `call_order` knows which collectives are one call, `stragglers` who
was late, `sample` which ranks of a large run are replayed. `report_cache` keeps a `run_report`; `titles` says what it
is titled, `in_notebooks` has it rendered. Memory: `memory`, `memory_growth`, `memory_owners`, `memory_categories`.
"""
