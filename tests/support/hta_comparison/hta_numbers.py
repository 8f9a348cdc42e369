"""Numbers of HolisticTraceAnalysis for a trace."""

import logging
import warnings
from pathlib import Path
from typing import Any

from hta.configs.config import logger  # type: ignore[import-not-found]
from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]

_ALL = 10**9


def hta_numbers(path: Path) -> dict[str, Any]:
    """HTA's breakdowns of one trace, in whole microseconds, as plain data."""
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        analysis = TraceAnalysis(trace_files={0: str(path)})
        return {
            "temporal": _temporal(analysis),
            "overlap_percent": _overlap(analysis),
            "idle": _idle(analysis),
            "launches": _launches(analysis),
            **_kernels(analysis),
        }


def _temporal(analysis: TraceAnalysis) -> dict[str, int]:
    row = analysis.get_temporal_breakdown(visualize=False).iloc[0]
    names = {"idle": "idle_time", "compute": "compute_time", "other": "non_compute_time", "window": "kernel_time"}
    return {name: int(row[f"{column}(us)"]) for name, column in names.items()}


def _overlap(analysis: TraceAnalysis) -> float | None:
    """Return the share of communication overlapped by computation; None without communication."""
    percent = float(analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].iloc[0])
    return None if percent != percent else percent


def _idle(analysis: TraceAnalysis) -> dict[str, int]:
    """Return idle time by stream and reason; reasons that took no time are omitted."""
    rows = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)[0]
    found = {f"{row.stream} {row.idle_category}": int(row.idle_time) for row in rows.itertuples()}
    return {key: time for key, time in sorted(found.items()) if time}


def _launches(analysis: TraceAnalysis) -> dict[str, int]:
    frame = analysis.get_cuda_kernel_launch_stats(visualize=False)[0]
    sums = {name: int(frame[name].sum()) for name in ("cpu_duration", "gpu_duration", "launch_delay")}
    return {"num": len(frame)} | sums


def _kernels(analysis: TraceAnalysis) -> dict[str, Any]:
    by_kind, by_name = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=_ALL, include_memory_kernels=True)
    return {
        "kinds": {row.kernel_type: int(row.sum) for row in by_kind[["kernel_type", "sum"]].itertuples() if row.sum},
        "kernels": {
            row["name"]: [int(row["sum (us)"]), int(row["max (us)"]), round(float(row["mean (us)"]), 3)]
            for row in by_name.to_dict("records")
        },
    }
