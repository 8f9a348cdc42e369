"""Recorders of events without markers: torch, system counters, loaders, garbage collection, memory, stack samples.

`torch_profiler` and `system_profiler` are enabled one by one. `nvml` reads the GPUs' counters for the latter, and
`visible_gpus` gives them torch's device numbers.

The others come with ``diagnose=True`` and are a `window_source`, which is active only while a window is open:
`gc_pauses`, `loader_facts`, `compile_events` and `stack_sampler`. `stack_spans` turns samples into spans,
`worker_sampler` samples DataLoader workers, `loop_clocks` reads the running time of the loop's thread, and `cpu_use`
the CPU time of the machine.

`growing_memory` and `float64_tensors` scan the objects that the functions around the loop reference
(`retained_objects`, `retained_tensors`, `captured_variables`) and find the responsible line in `bytecode`
(`leak_lines`).
"""
