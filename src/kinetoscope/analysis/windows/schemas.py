"""Columns and types of the frames that analyses exchange. Times are nanoseconds, memory is bytes."""

import polars as pl

INTERVALS = pl.Schema({"begin": pl.Int64, "end": pl.Int64})
STEPS = pl.Schema({"step": pl.Int64, **INTERVALS, "track": pl.UInt32, "is_batch": pl.Boolean})
"""Steps of the loop. ``track`` is the loop's thread; ``is_batch`` is true for ``event/batch``."""

SPANS = pl.Schema(
    {
        "begin": pl.Int64,
        "name": pl.String,
        "category": pl.Categorical(),
        "track": pl.UInt32,
        "correlation": pl.Int64,
        "stream": pl.Int64,
        "device": pl.Int64,
        "batch": pl.Int64,
        "bytes": pl.Int64,
        "collective_sequence": pl.Int64,
        "shapes": pl.Categorical(),
        "collective": pl.Categorical(),
        "dtype": pl.Categorical(),
        "group": pl.Categorical(),
        "elements_in": pl.Int64,
        "elements_out": pl.Int64,
        "group_size": pl.Int64,
        "types": pl.Categorical(),
        "end": pl.Int64,
    }
)
"""Spans of threads, and frames of sampled stacks."""

DEVICE_EVENTS = pl.Schema(
    {
        **SPANS,
        "kind": pl.String,
        "launch_begin": pl.Int64,
        "launch_end": pl.Int64,
        "launch_track": pl.UInt32,
        "launch_name": pl.String,
    }
)
"""Kernels, copies and sets.

``kind`` is ``compute``, ``communication`` or ``copy``; ``launch_begin``, ``launch_end``, ``launch_track`` and
``launch_name`` describe the call that launched each, null if unknown.
"""

OPERATORS = pl.Schema(
    {name: SPANS[name] for name in ("begin", "end", "track", "name", "shapes", "types")} | {"label": pl.Categorical()}
)
"""``label`` is the name as a category, which is quick to group by."""

ALLOCATIONS = pl.Schema(
    {
        "ts": pl.Int64,
        "track": pl.UInt32,
        "bytes": pl.Int64,
        "address": pl.Int64,
        "total": pl.Int64,
        "device": pl.Int64,
    }
)
"""Allocations and, with negative ``bytes``, releases.

``total`` is the allocated memory after each event; ``device`` is null for the memory of the CPU.
"""

SOURCE_INSTANTS = pl.Schema(
    {"ts": pl.Int64, "track": pl.UInt32, "category": pl.String, "name": pl.String, "args": pl.String}
)
COUNTERS = pl.Schema(
    {
        "ts": pl.Int64,
        "track": pl.UInt32,
        "name": pl.String,
        "category": pl.String,
        "series": pl.String,
        "value": pl.Float64,
    }
)


# -- frames that analyses exchange

SAMPLES = pl.Schema({"line": pl.String, "call": pl.String, "state": pl.String, "lasts_ns": pl.Int64, "at": pl.Int64})
"""Samples of a thread's stack: see `sampled_lines`."""

CALLS = pl.Schema(
    {
        "row": pl.UInt32,
        "begin": pl.Int64,
        "end": pl.Int64,
        "group": pl.String,
        "sequence": pl.Int64,
        "name": pl.String,
        "elements": pl.Int64,
        "bytes": pl.Int64,
        "channel": pl.String,
        "source": pl.Int64,
        "destination": pl.Int64,
        "rank": pl.Int64,
        "step": pl.Int64,
        "after": pl.Int64,
        "first_step": pl.Int64,
        "last_step": pl.Int64,
        "paused_from": pl.Int64,
        "paused_until": pl.Int64,
        "order": pl.Int64,
        "is_launched": pl.Boolean,
    }
)
"""Calls of collectives of one rank: see `find_collective_calls`."""

NODES = pl.Schema({"time": pl.Int64, "is_end": pl.Boolean, "rank": pl.Int64, "window": pl.UInt32})
"""Moments of a replay. ``is_end`` is true for ends of steps, or of device events."""

EDGES = pl.Schema(
    {
        "source": pl.UInt32,
        "target": pl.UInt32,
        "kind": pl.String,
        "weight": pl.Int64,
        "step": pl.Int64,
        "is_guessed": pl.Boolean,
        "is_for_data": pl.Boolean,
        "name": pl.String,
        "is_communication": pl.Boolean,
        "exposed_ns": pl.Int64,
        "group_size": pl.Int64,
        "is_of_cpu_optimizer": pl.Boolean,
        "rank": pl.Int64,
        "launched_in": pl.Int64,
        "num_ranks": pl.Int64,
        "is_entry": pl.Boolean,
        "is_message": pl.Boolean,
        **dict.fromkeys(("data", "launch", "python", "avoidable_python", "avoidable_data", "blocked", "gc"), pl.Int64),
        **dict.fromkeys(("compile", "profiler", "cpu_optimizer", "cpu_operator"), pl.Int64),
    }
)
"""Dependencies in a replay. The last eleven are the parts of the CPU's time in an edge."""

CPU_OPERATOR_TIME = pl.Schema(
    {"track": pl.UInt32, **INTERVALS, "name": pl.String, "idle_ns": pl.Int64, "part": pl.String}
)
"""Intervals of operators that compute on the CPU: see `find_cpu_operators`."""

STALLS = pl.Schema(
    {
        "kind": pl.String,
        "name": pl.String,
        "line": pl.String,
        "library": pl.String,
        "guard": pl.String,
        "step": pl.Int64,
        "num_calls": pl.Int64,
        "total_ns": pl.Int64,
    }
)
"""Spans in which a loop may stall, by kind and step."""

SAMPLED = pl.Schema(
    {
        "kind": pl.String,
        "line": pl.String,
        "call": pl.String,
        "state": pl.String,
        "step": pl.Int64,
        "num_samples": pl.UInt32,
        "total_ns": pl.Int64,
    }
)
"""Samples in those spans."""

LIBRARY_CALLS = pl.Schema(
    {
        "kind": pl.String,
        "line": pl.String,
        "function": pl.String,
        "library_line": pl.String,
        "total_ns": pl.Int64,
        "depth_ns": pl.Int64,
    }
)
"""Time of functions of libraries that the user's lines call: see `library_calls`."""


NESTED = pl.Schema({"dur": pl.Int64, "parent": pl.UInt32, "depth": pl.UInt32, "self_ns": pl.Int64})
"""Spans in one another: see `kinetoscope.frames.tracks.nest_spans`."""

OPERATOR_CALLS = pl.Schema(
    {
        "name": pl.Categorical(),
        "shapes": pl.Categorical(),
        "track": pl.UInt32,
        "begin": pl.Int64,
        "dur": pl.Int64,
        "self_ns": pl.Int64,
        "device_ns": pl.Int64,
        "self_device_ns": pl.Int64,
    }
)
"""Calls of operators: see `operator_calls`."""

MODULE_CALLS = pl.Schema(
    {**INTERVALS, "track": pl.UInt32, "name": pl.String, "is_recomputed": pl.Boolean, "parent": pl.UInt32}
)
"""Calls of torch modules: see `ModuleCalls`."""

MODULE_COSTS = pl.Schema({"name": pl.String, "module": pl.String, "level": pl.Int64, "amount": pl.Int64})
"""Amounts of each ``name`` by module, with the modules inside; null is the whole. ``level`` is the largest number of
calls around a module, itself included. See `share_moments`."""

WORK = pl.Schema(
    {
        "flops": pl.Float64,
        "timed_flops": pl.Float64,
        "timed_ns": pl.Int64,
        "peak_ns": pl.Float64,
        "executed_flops": pl.Float64,
        "bytes": pl.Float64,
        "is_matmul": pl.Boolean,
    }
)
"""Floating-point operations of calls and kernels: see `WindowWork`."""

LIFETIMES = pl.Schema({**ALLOCATIONS, "row": pl.UInt32, "end": pl.Int64, "end_row": pl.UInt32, "is_first": pl.Boolean})
"""Allocations until the next event of their address: see `lifetimes`."""

PHASE_PIECES = pl.Schema({**INTERVALS, "phase": pl.String})
WAITS = pl.Schema(
    {
        "track": pl.UInt32,
        **INTERVALS,
        "event": pl.UInt32,
        "event_end": pl.Int64,
        "no_wait_ns": pl.Int64,
        "kind": pl.String,
        "is_guessed": pl.Boolean,
    }
)
"""Waits of threads for device events: see `HostWaits`."""

LOADS = pl.Schema({"rank": pl.Int64, "takes_ns": pl.Int64})
"""Time of each rank between collectives: see `load_rows`."""

SUBSTITUTES = pl.Schema({"node": pl.UInt32, "time": pl.Int64, "time_of_model": pl.Int64})
"""First moments of ranks that began late: see `Substitute`."""


def require(frame: pl.DataFrame, schema: pl.Schema, subject: str) -> None:
    """Raise TypeError if a frame has other columns or types than its schema."""
    if frame.schema != schema:
        found = {name: dtype for name, dtype in frame.schema.items() if schema.get(name) != dtype}
        missing = [name for name in schema if name not in frame.schema]
        raise TypeError(f"{subject}: unknown columns, or columns of another type: {found}; missing columns: {missing}.")
