"""Thresholds of kernels, launches and idle GPUs."""

import polars as pl

from kinetoscope.analysis.cpu.cpu_operators import are_for_data
from kinetoscope.analysis.gpu.idle import idle_time
from kinetoscope.analysis.gpu.kernels import KernelRow
from support.synthetic_evidence import STEP_NS, Run, find
from support.synthetic_evidence.thresholds import threshold


def launching(cpu_ns, kernel_ns, num=20):
    """Return a run that launches so many kernels in each step, and then a large one."""
    kernels = [(round(cpu_ns), round(kernel_ns))] * num + [(10_000, 400_000)]
    return Run(
        has_gpu=True,
        kernels_ns=lambda rank, step: kernels,
        work_ns=lambda rank, step: num * round(max(cpu_ns, kernel_ns)) + 410_000 + round(min(cpu_ns, kernel_ns)),
        by_rank={"idle_host_wait_ns": 10 * STEP_NS},
    )


@threshold("cpu.cpu_operators.MIN_CPU_OPERATOR_NS", 100_000)
def counts_no_more_as_launch(time_ns):
    found = find("host_bound", launching(500_000, 300_000))
    return dict(found.evidence)["launch_ns"] <= 20 * time_ns + 10_000


@threshold("findings.fault_graph.MAX_SMALL_KERNEL_NS", 20_000)
def is_no_small_kernel(time_ns):
    return find("small_kernels", launching(100_000, time_ns)) is None


@threshold("findings.fault_graph.MIN_SMALL_KERNELS", between=(7, 8))
def is_a_run_of_small_kernels(num):
    return find("small_kernels", launching(200_000, 10_000, num=num)) is not None


@threshold("findings.fault_graph._MAX_EMPTY_KERNEL_NS", 5_000)
def stays_in_the_replay(time_ns):
    """Without the CPU's time, kernels remain if they do something."""
    drawn = launching(100_000, time_ns)
    found = find("small_kernels", drawn)
    return drawn.times_ns[1] - found.saving_ns_per_step > 410_000 + 10 * time_ns


@threshold("cpu.cpu_operators.MIN_DATA_BYTES", 16_384)
def is_data(num_bytes):
    calls = pl.DataFrame({"track": [1], "begin": [10], "end": [30], "correlation": [7]})
    copy = {"kind": ["copy"], "bytes": [round(num_bytes)], "name": ["Memcpy DtoH (Device -> Pageable)"]}
    device = pl.DataFrame({**copy, "correlation": [7], "launch_begin": [5], "launch_track": [1]})
    return bool(are_for_data(calls, device, [pl.DataFrame(schema={"track": pl.Int64, "begin": pl.Int64})])[0])


@threshold("gpu.idle.MAX_KERNEL_WAIT_NS", 30_000)
def is_an_unexplained_gap(time_ns):
    device = pl.DataFrame({"begin": [0, 1000 + round(time_ns)], "end": [1000, 10**6], "launch_begin": [0, 500]})
    return idle_time(device.with_columns(launch_name=pl.lit("cudaLaunchKernel"))).other_ns > 0


def in_float32(major=8):
    """Return the finding on float32 matmuls that take 40 % of each step of the GPU."""
    name = "sgemm_128x64"
    times = dict.fromkeys(("self_ns", "mean_ns", "p50_ns", "p95_ns", "max_ns"), STEP_NS * 2 // 5)
    drawn = Run(
        has_gpu=True,
        kernel_names=(name, "relu"),
        kernels_ns=lambda rank, step: [(0, STEP_NS * 2 // 5), (0, STEP_NS * 3 // 5)],
        kernels=[KernelRow(name=name, kind="compute", num_calls=10, total_ns=4 * STEP_NS, **times)],
        gpu={"majors_by_device": {0: major}},
    )
    return find("float32_matmul", drawn)


@threshold("findings.slow_matmuls._MIN_SPEEDUP", 2)
def saves_no_more(times):
    found = in_float32()
    return found is None or found.saving_ns_per_step <= 0.4 * STEP_NS * (1 - 1 / times)


@threshold("findings.rules.float32_matmul._FIRST_MAJOR_WITH_TF32", between=(7, 8))
def has_tf32(major):
    return in_float32(major) is not None
