"""Collective calls of a run, with the start and the end of each rank."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.ranks.point_to_point import (
    SEND,
    bound_clock_shifts,
    find_channels,
    find_cpu_peers,
    parse_peers_of_args,
    parse_peers_of_titles,
)
from kinetoscope.analysis.windows.call_order import assign_call_order
from kinetoscope.analysis.windows.columns import build_frame, constant_column, drop_null_rows, filter_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import find_enclosing, interval_index
from kinetoscope.analysis.windows.span_names import COMMUNICATION_CALLS, CPU_COLLECTIVES, DEVICE_COLLECTIVES
from kinetoscope.analysis.windows.window import RankWindow

_NAMES = {
    name.replace("_", ""): name
    for name in (
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "broadcast",
        "barrier",
        "reduce",
        "gather",
        "scatter",
        "send_recv",
    )
} | {"alltoallv": "all_to_all", "allgatherv": "all_gather", "recv": "send"}
_ALL_TO_ALL = "all_to_all"
_POINT_TO_POINT = (_ALL_TO_ALL, "send", "recv", "send_recv")
_MAX_SPREAD_OF_ENDS = 0.05
"""An all-to-all that ends on all ranks within this share of its length makes each rank wait for all others, as an
all-reduce does. Those of a recommender on 8 ranks (DLRM) end within 13 us of each other, after up to 7.6 ms."""
MOMENTS = ("begin", "end", "paused_from", "paused_until")
"""Columns of calls with moments. A pause is the longest interval of a call in which its rank computes nothing."""

_CALL_COLUMNS = ("collective", "group", "collective_sequence", "dtype", "elements_in", "elements_out", "peer")
_RANK_COLUMNS = ("rank", "begin", "end", "wait_ns")
_ENDS_TOGETHER = ("all_reduce", "all_gather", "reduce_scatter")
_BYTES = {"float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long": 8, "byte": 1, "char": 1, "bool": 1}
_BYTES |= {"float32": 4, "float64": 8, "float16": 2, "int32": 4, "int64": 8, "uint8": 1, "int8": 1, "short": 2}
_BYTES |= {"long int": 8, "unsigned char": 1, "signed char": 1, "c10::bfloat16": 2, "c10::half": 2}

MAX_CLOCK_DIFFERENCE_NS = 60_000_000_000
"""Ranks whose clocks, or whose same steps, are further apart may be of different runs."""

_MAX_SPREAD_SHARE, _MIN_CALLS = 0.1, 3
"""So many calls whose ends differ by the same time, within this share of a call, are the same calls on both ranks."""


@dataclass(frozen=True, kw_only=True)
class CollectiveRow(PlainData):
    """One collective call of the run. Times are unix nanoseconds on the common clock, in the order of ``ranks``.

    What is unknown is None. Of a message only the receiver waits, so there are no ``waits_ns``.

    Attributes:
        skew_ns: the last start less the first.
        transfer_ns: the last end less the last start.
        waits_ns: how long each rank waited for the last one and computed nothing. A wait in two calls at once counts
            for the call that started it first.
        late_rank: the rank that started last. All of these are None for an all-to-all that does not end on all ranks
            together: its ranks do not wait for all others.
    """

    group: str | None
    sequence: int | None
    step: int | None
    name: str
    bytes: int | None
    num_ranks: int
    ranks: tuple[int, ...]
    starts_ns: tuple[int, ...]
    ends_ns: tuple[int, ...]
    skew_ns: int | None
    transfer_ns: int | None
    waits_ns: tuple[int, ...] | None
    late_rank: int | None
    bandwidth_bytes_per_s: float | None


def find_collective_calls(window: RankWindow) -> pl.DataFrame:
    """Return one row per call in a window of one rank, in the order of launches.

    Calls in flight at the start of the window come first. ``after`` is the step that had started last, null before the
    first one; ``order`` the index in its channel since then. `find_channels` explains ``channel``, ``source`` and
    ``destination``.
    """
    calls = _find_device_calls(window) if len(window.device) else _find_gloo_calls(window)
    steps = window.steps["step"]
    calls = calls.hstack(
        [
            *find_channels(window, calls).get_columns(),
            constant_column("rank", window.rank, pl.Int64, len(calls)),
            steps[interval_index(window.steps, calls["launch_begin"])].cast(pl.Int64).alias("step"),
            _find_last_step(window, calls["launch_begin"]).alias("after"),
            constant_column("first_step", steps.first(), pl.Int64, len(calls)),
            constant_column("last_step", steps.last(), pl.Int64, len(calls)),
            *_find_longest_pauses(_find_computing_time(window), calls).get_columns(),
        ]
    ).sort("launch_begin", "begin")
    order = pl.int_range(pl.len(), dtype=pl.Int64).over("channel", "after")
    calls = calls.with_columns(order=order, is_launched=pl.col("launch_begin").is_not_null())
    return calls.drop("launch_begin", "direction", "peer")


def _find_last_step(window: RankWindow, times: pl.Series) -> pl.Series:
    """Return the step that had started last at each time."""
    steps = window.steps["step"]
    numbers = pl.concat([constant_column("step", None, steps.dtype, 1), steps])
    return numbers[window.steps["begin"].search_sorted(times, side="right")]


def _find_computing_time(window: RankWindow) -> IntervalUnion:
    """Return the time in which the device computes, or the loop's thread where there is no device."""
    if len(window.device):
        return window.devices.time.compute
    # An operator of a DTensor waits for a collective inside of it.
    return window.operator_time.difference(IntervalUnion(window.on_loop_thread(window.cpu.named(COMMUNICATION_CALLS))))


def _find_longest_pauses(computing: IntervalUnion, calls: pl.DataFrame) -> pl.DataFrame:
    """Return ``paused_from`` and ``paused_until`` of each call; its end where its rank computes all the time.

    Computing after the pause does not shorten it: it may continue a little before the recorded end of the call.
    """
    pieces, never = computing.pieces, pl.Series([None], dtype=pl.Int64)
    pauses = pl.DataFrame([pl.concat([never, pieces["end"]]), pl.concat([pieces["begin"], never])])
    first = pieces["begin"].search_sorted(calls["begin"], side="right")
    last = pieces["end"].search_sorted(calls["end"], side="left")
    within = pl.int_ranges(first, last + 1, dtype=pl.Int64, eager=True).alias("pause")
    found = build_frame(calls["begin"], calls["end"], within).with_row_index("call").explode("pause")
    found = drop_null_rows(found, "pause")
    begins, ends = (column[found["pause"]] for column in pauses)
    found = found.select(
        "call", paused_from=pl.max_horizontal("begin", begins), paused_until=pl.min_horizontal("end", ends)
    )
    length = pl.col("paused_until") - pl.col("paused_from")
    longest = found.sort(length, descending=True, maintain_order=True).unique("call", keep="first")
    rows = calls[["end"]].with_row_index("call").join(longest, on="call", how="left", maintain_order="left")
    return rows.select(pl.col("paused_from", "paused_until").fill_null(pl.col("end")))


def _find_device_calls(window: RankWindow) -> pl.DataFrame:
    """Return kernels that communicate, with missing arguments from the call around their launch."""
    kernels = filter_rows(window.device.with_row_index("row"), window.device["kind"] == "communication")
    calls = window.cpu.named(DEVICE_COLLECTIVES)
    is_detailed = calls["name"] == "record_param_comms"
    calls = calls.hstack([parse_peers_of_args(window, calls)])
    details, named = (
        find_enclosing(
            filter_rows(calls[["begin", "end", "track", *columns]], is_wanted),
            kernels["launch_track"],
            kernels["launch_begin"],
        )
        for is_wanted, columns in ((is_detailed, _CALL_COLUMNS), (~is_detailed, ("name", "types", "shapes")))
    )
    elements = pl.coalesce(
        pl.max_horizontal("elements_in", "elements_out"),
        pl.max_horizontal(details["elements_in"], details["elements_out"]),
        _num_elements(named["shapes"]),
    )
    dtype = pl.coalesce(_text("dtype"), details["dtype"].cast(pl.String), _first_string(named["types"]))
    name = pl.coalesce(_text("collective"), details["collective"].cast(pl.String), _name_after_colon(named["name"]))
    return kernels.select(
        "row",
        "begin",
        "end",
        "launch_begin",
        group=_strip_quotes(pl.coalesce(_text("group"), details["group"].cast(pl.String))),
        sequence=pl.coalesce("collective_sequence", details["collective_sequence"]),
        name=_normalize_name(pl.coalesce(_strip_quotes(name), _extract_kernel_name())),
        direction=_strip_quotes(name),
        peer=parse_peers_of_titles(named["name"]).fill_null(details["peer"]),
        elements=elements,
        bytes=elements * _element_bytes(_strip_quotes(dtype)),
    )


def _find_gloo_calls(window: RankWindow) -> pl.DataFrame:
    calls = window.cpu.named(CPU_COLLECTIVES).sort("begin").with_row_index("row")
    elements = _num_elements(calls["shapes"])
    return calls.select(
        "row",
        "begin",
        "end",
        launch_begin="begin",
        group=_find_groups_of_threads(window, calls["track"]),
        sequence=pl.lit(None, dtype=pl.Int64),
        name=_normalize_name(_name_after_colon(calls["name"])),
        direction=_name_after_colon(calls["name"]),
        peer=find_cpu_peers(window, calls),
        elements=elements,
        bytes=elements * _element_bytes(_first_string(calls["types"])),
    )


def _find_groups_of_threads(window: RankWindow, tracks: pl.Series) -> pl.Series:
    """Return the group of each call, by its thread; where there is just one group, it is of all calls."""
    groups, threads = [*window.trace.process_groups], window.trace.group_threads
    if len(groups) == 1 or not threads:
        return constant_column("group", groups[0] if len(groups) == 1 else None, pl.String, len(tracks))
    known = window.trace.tracks.select("track", "tid_number").collect()
    by_track = {track: threads.get(thread) for track, thread in known.iter_rows()}
    return tracks.replace_strict(by_track, default=None, return_dtype=pl.String).alias("group")


def _text(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String)


def _strip_quotes(text: pl.Expr) -> pl.Expr:
    """Return the content of a JSON string; any other value unchanged."""
    return text.str.strip_chars('"')


def _name_after_colon(names: pl.Series) -> pl.Series:
    return names.str.extract(r":_?(.*)$")


def _first_string(types: pl.Series) -> pl.Series:
    """Return the first string of a JSON list of strings."""
    return types.cast(pl.String).str.extract(r'"([^"]+)"')


def _extract_kernel_name() -> pl.Expr:
    return pl.col("name").str.extract(
        r"(?i)(all_?reduce|all_?gather|reduce_?scatter|broadcast|send_?recv|all_?to_?all|reduce)"
    )


def _normalize_name(names: Any) -> Any:
    """Return one name per kind of call: ``allreduce``, ``AllReduce`` and ``all_reduce`` are ``all_reduce``."""
    plain = (
        names.str.to_lowercase()
        .str.replace_all(r"[^a-z]", "")
        .str.replace(r"(base|coalesced|intotensor|tensor|async)+$", "")
    )
    return plain.replace(_NAMES)


def _element_bytes(dtype: Any) -> Any:
    """Return the size of an element, for an expression or a series of dtypes."""
    return dtype.str.to_lowercase().replace_strict(_BYTES, default=None)


def _num_elements(shapes: pl.Series) -> pl.Series:
    """Return the number of elements of all tensors in a call's shapes; null without shapes."""
    texts = shapes.cast(pl.String)
    known = {text: _count_elements(text) for text in texts.unique().drop_nulls().to_list()}
    return texts.replace_strict(known, default=None, return_dtype=pl.Int64)


def _count_elements(text: str) -> int | None:
    """Return the number of elements: 6 for ``[[2, 3], []]``, and for ``[[[2, 3]], []]``, a list of tensors."""
    try:
        shapes = json.loads(text)
    except ValueError:
        return None
    tensors = [shape for shape in _iterate_shapes(shapes) if shape]
    return sum(math.prod(shape) for shape in tensors) if tensors else None


def _iterate_shapes(value: Any) -> Iterable[list[int]]:
    if isinstance(value, list):
        if value and all(isinstance(size, int) for size in value):
            yield value
        for item in value:
            yield from _iterate_shapes(item)


@dataclass(frozen=True)
class ClockShift:
    """Shift of a rank's clock to the common one, and the bound of its error, in nanoseconds."""

    shift_ns: int
    bound_ns: int


@dataclass(frozen=True)
class JoinedCollectives:
    """The calls of a run.

    Attributes:
        rows: the calls.
        calls: a frame of the parts of calls that several ranks recorded, with ``part``, ``row``, and ``call``, the same
            for all parts of a call. Times are on the common clock.
    """

    rows: list[CollectiveRow]
    calls: pl.DataFrame


def join_collectives(
    windows: Sequence[pl.DataFrame], exact_ranks: Iterable[int] = ()
) -> tuple[JoinedCollectives, dict[int, ClockShift]]:
    """Join the calls of windows to calls of the run, and estimate the clock shift of each rank for that.

    A call is identified by its group and sequence number, or else by its group, step and order after the step's start.
    Clocks of ranks not in ``exact_ranks`` are shifted so that calls that end on all ranks together do so.

    Args:
        windows: the calls of each window, from `find_collective_calls`.
        exact_ranks: ranks that share one clock.
    """
    calls = [calls.with_columns(part=pl.lit(part, pl.UInt32)) for part, calls in enumerate(windows)]
    parts = _add_call_numbers(assign_call_order(pl.concat(calls)))
    shifts = _estimate_clock_shifts(parts, set(exact_ranks))
    shift_ns = {rank: shift.shift_ns for rank, shift in shifts.items()}
    moved = pl.col("rank").replace_strict(shift_ns, default=0, return_dtype=pl.Int64)
    parts = parts.with_columns(pl.col(*MOMENTS) + moved)
    rows, alone = _rows(parts)
    waiting = [call for call, row in rows.items() if row.num_ranks > 1]
    joined = parts.filter(pl.col("call").is_in(waiting))
    return JoinedCollectives(sorted([*rows.values(), *alone], key=lambda row: row.starts_ns[0]), joined), shifts


def _add_call_numbers(calls: pl.DataFrame) -> pl.DataFrame:
    """Add ``call``, the number of the run's call that each one is part of."""
    # Each rank counts its sends and receives itself, so their numbers differ on both sides.
    by_sequence = pl.col("sequence").is_not_null() & (pl.col("name") != SEND).fill_null(True)
    position = [pl.when(~by_sequence).then(name) for name in ("after", "order")]
    # Ranks put unequal numbers of elements into one all-to-all, as tokens for experts.
    elements = pl.when(pl.col("name") != _ALL_TO_ALL).then("elements")
    sequence = pl.when(by_sequence).then("sequence")
    key = pl.struct("channel", sequence, *position, "name", elements)
    is_known = by_sequence | pl.any_horizontal(pl.col("step", "channel").is_not_null())
    return calls.filter(is_known).with_columns(call=key.rank("dense"))


def _estimate_clock_shifts(parts: pl.DataFrame, exact_ranks: set[int]) -> dict[int, ClockShift]:
    """Estimate by rank how much earlier its calls end than on ranks with a known shift: the median, and the spread.

    Known are ``exact_ranks``, or the first rank, at first; then ranks that share calls with them, and so on. Where a
    rank has no other common calls, all-to-alls count, or its messages (`bound_clock_shifts`): their ends differ more.
    """
    ends = parts.drop_nulls("rank")
    from_zero = pl.col("end") - pl.col("end").min()  # or a median would round it
    ends = ends.select("name", "call", "rank", end=from_zero, dur=pl.col("end") - pl.col("begin"))
    together, others = (ends.filter(pl.col("name").is_in(list(kind))) for kind in (_ENDS_TOGETHER, [_ALL_TO_ALL]))
    messages = parts.drop_nulls(["rank", "source"])
    shifts = {rank: ClockShift(0, 0) for rank in exact_ranks or ends["rank"].unique().sort()[:1]}
    while found := (
        _estimate_next_shifts(together, shifts)
        or _estimate_next_shifts(others, shifts)
        or _estimate_shifts_by_messages(messages, shifts)
    ):
        shifts |= found
    return {rank: shift for rank, shift in shifts.items() if rank not in exact_ranks}


def _estimate_shifts_by_messages(messages: pl.DataFrame, shifts: Mapping[int, ClockShift]) -> dict[int, ClockShift]:
    """Return the shifts of ranks that exchange messages with those whose shift is known."""
    if not len(messages):
        return {}
    found = bound_clock_shifts(messages, {rank: shift.shift_ns for rank, shift in shifts.items()})
    return {
        rank: ClockShift(shift_ns, bound_ns)
        for rank, (shift_ns, bound_ns) in found.items()
        if bound_ns >= 0 and abs(shift_ns) <= MAX_CLOCK_DIFFERENCE_NS
    }


def _estimate_next_shifts(ends: pl.DataFrame, shifts: dict[int, ClockShift]) -> dict[int, ClockShift]:
    """Estimate the shifts of further ranks by calls shared with ranks of known shift; large ones only if certain."""
    is_known = pl.col("rank").is_in(list(shifts))
    shift_ns = {rank: shift.shift_ns for rank, shift in shifts.items()}
    moved = pl.col("end") + pl.col("rank").replace_strict(shift_ns, default=None, return_dtype=pl.Int64)
    known = ends.filter(is_known).group_by("call").agg(known_end=moved.median())
    early = ends.filter(~is_known).join(known, on="call").with_columns(early=pl.col("known_end") - pl.col("end"))
    spread = (pl.col("early") - pl.col("early").median()).abs().median()
    is_certain = (spread < _MAX_SPREAD_SHARE * pl.col("dur").median()) & (pl.len() >= _MIN_CALLS)
    found = early.group_by("rank").agg(pl.col("early").median(), spread=spread, is_certain=is_certain)
    found = found.filter((pl.col("early").abs() <= MAX_CLOCK_DIFFERENCE_NS) | pl.col("is_certain")).drop("is_certain")
    return {rank: ClockShift(round(shift), round(bound)) for rank, shift, bound in found.sort("rank").iter_rows()}


def _rows(parts: pl.DataFrame) -> tuple[dict[int, CollectiveRow], list[CollectiveRow]]:
    """Return the row of each call by its number, and a row for each part that is not of one call."""
    by_call = _add_waits(parts).sort("call", "rank").group_by("call", maintain_order=True)
    first = [pl.col(name).drop_nulls().first() for name in ("group", "step", "name", "bytes")]
    sequence = pl.col("sequence").drop_nulls()
    first.append(pl.when(sequence.n_unique() == 1).then(sequence.first()))
    rows, alone = {}, []
    for call in by_call.agg(*first, *_RANK_COLUMNS).iter_rows(named=True):
        if _is_one_call(call):
            rows[call["call"]] = _row(**call)
        else:
            parts_of_call = zip(*(call[name] for name in _RANK_COLUMNS), strict=True)
            alone += [
                _row(**call | {name: [value] for name, value in zip(_RANK_COLUMNS, part, strict=True)})
                for part in parts_of_call
            ]
    return rows, alone


def _is_one_call(call: dict[str, Any]) -> bool:
    """Return whether parts are one call: each rank has one of them, and they overlap.

    A send may end before it is received.
    """
    ranks, apart_ns = call["rank"], max(call["begin"]) - min(call["end"])
    return len(set(ranks)) == len(ranks) and apart_ns <= (
        MAX_CLOCK_DIFFERENCE_NS if call["name"] in _POINT_TO_POINT else 0
    )


def _row(**call: Any) -> CollectiveRow:
    ranks, starts, ends = call["rank"], call["begin"], call["end"]
    last_start = max(starts)
    is_all = call["name"] not in _POINT_TO_POINT or _waits_for_all_ranks(call["name"], starts, ends)
    is_timed, has_waits = len(ranks) > 1 and (is_all or call["name"] == SEND), len(ranks) > 1 and is_all
    transfer_ns = max(ends) - last_start if is_timed else None
    return CollectiveRow(
        group=call["group"],
        sequence=call["sequence"],
        step=call["step"],
        name=call["name"],
        bytes=call["bytes"],
        num_ranks=len(ranks),
        ranks=tuple(ranks),
        starts_ns=tuple(starts),
        ends_ns=tuple(ends),
        skew_ns=last_start - min(starts) if is_timed else None,
        transfer_ns=transfer_ns,
        waits_ns=tuple(call["wait_ns"]) if has_waits else None,
        late_rank=ranks[starts.index(last_start)] if is_timed else None,
        bandwidth_bytes_per_s=call["bytes"] * 1e9 / transfer_ns if call["bytes"] and transfer_ns else None,
    )


def _waits_for_all_ranks(name: str, starts: Sequence[int], ends: Sequence[int]) -> bool:
    """Return whether it is an all-to-all in which each rank waits for all others."""
    return name == _ALL_TO_ALL and max(ends) - min(ends) <= _MAX_SPREAD_OF_ENDS * (max(ends) - min(starts))


def _add_waits(parts: pl.DataFrame) -> pl.DataFrame:
    """Add ``wait_ns`` to parts of calls, in nanoseconds.

    It is the part of the pause before the last rank started the call, without waits of the same rank that started
    earlier.
    """
    last = pl.col("begin").max()
    is_one = (pl.len() > 1) & (pl.col("rank").n_unique() == pl.len()) & (last <= pl.col("end").min())
    end, length = pl.col("end"), pl.col("end").max() - pl.col("begin").min()
    is_together = (end.max() - end.min() <= _MAX_SPREAD_OF_ENDS * length) & (pl.col("name").first() == _ALL_TO_ALL)
    is_all = (~pl.col("name").is_in(_POINT_TO_POINT)).fill_null(True) | is_together.fill_null(False).over("call")
    is_timed = is_one.over("call") & is_all
    until = pl.when(is_timed).then(pl.min_horizontal(last.over("call"), "paused_until")).otherwise(-(2**62))
    waits = parts.with_columns(wait_until=until).sort("rank", "paused_from")
    reach = pl.col("wait_until").cum_max().shift(1).over("rank")
    wait_ns = (pl.col("wait_until") - pl.max_horizontal("paused_from", reach)).clip(0)
    return waits.with_columns(wait_ns=wait_ns).drop("wait_until")
