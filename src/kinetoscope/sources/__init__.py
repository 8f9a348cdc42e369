"""sources: what records into a cycle by itself, without markers.

`torch_profiler` and `system_profiler` (its GPUs: `nvml`, and `visible_gpus`, which has torch's numbers of them) are
asked for one by one. The rest comes with ``diagnose=True``, and a `window_source` works only while a window is open:
`gc_pauses`, `loader_facts`, `compile_events`, `stack_sampler` (`stack_spans` makes spans of samples, `worker_sampler`
takes them in workers, `loop_clocks` says how long the thread ran, `read_cpu_use` who had the processors), and, by a
look at the objects that the functions around the loop hold (`retained_objects`, `retained_tensors`), `growing_memory`
(`leak_lines`) and `float64_tensors`, which find lines in the `bytecode` of functions.
"""
