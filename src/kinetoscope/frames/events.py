"""The columns of a trace's events, and the events of one trace as one frame, from the blocks of rows of a scan."""

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome_event import MAX_DIGITS, UNIX_NS
from kinetoscope.formats.chrome_scan import (
    BYTES,
    NUMBERS,
    TEXTS,
    decode_json_text,
    decode_texts,
)
from kinetoscope.formats.device_events import DEVICE_CATEGORIES
from kinetoscope.formats.header import validate_header
from kinetoscope.formats.health import Health, are_timeless, count_overlapping
from kinetoscope.formats.trace_names import BATCH, STEP
from kinetoscope.frames.tracks import nest_spans

KINDS = ("span", "instant", "counter", "flow", "metadata", "end", "other")
"""The kinds of events. ``end`` is the second event of a span written as two events; the first one has the duration."""

ARGUMENT_NUMBERS = NUMBERS[3:]

ARGUMENT_TEXTS = TEXTS[4:]

SPAN_COLUMNS = ("ts", "dur", "name", "category", "track", "id", *ARGUMENT_NUMBERS, *ARGUMENT_TEXTS, *BYTES)
"""``ts`` and ``dur`` are nanoseconds, ``ts`` unix ones if the file has a clock; ``track`` is a row of ``.tracks``."""

INSTANT_COLUMNS = ("ts", "name", "category", "track", "id", *ARGUMENT_NUMBERS, *BYTES)

FLOW_COLUMNS = ("ts", "step", "name", "category", "track", "id", "id_text", *BYTES)
"""``step`` is ``s``, ``t`` or ``f``: a flow's start, a step, its finish. ``id_text`` is an id that is no integer."""

_MAX_BASE_NS = 2**62
_MIN_OVERLAP_NS = 1000  # profilers round the ends of spans to a microsecond
_BASE_FIELD = "baseTimeNanoseconds"
_MAX_EVENTS_BEFORE_HEADER = 7
_STRINGS = ("name", "category", "id_text")
_STORED_AS_STRINGS = ("name", "category")
"""The texts that people search, as strings for `.str`. The others are polars categories, a quarter of the size."""

_HALVES = list(b"BEbeSF")
_KIND_OF_PHASE = {"X": "span", "B": "span", "b": "span", "S": "span", "E": "end", "e": "end", "F": "end"}
_KIND_OF_PHASE |= dict.fromkeys("iIRnTp", "instant") | dict.fromkeys("stf", "flow") | {"C": "counter", "M": "metadata"}


@dataclass(slots=True)
class Pairs:
    """Spans that were written as two events.

    ``rows`` are the rows of the first events, and ``durations`` in ns; the counts are of begins without an end, and of
    ends without a begin.
    """

    rows: list[int] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    num_lone_begins: int = 0
    num_lone_ends: int = 0


@dataclass(slots=True)
class TraceInfo:
    """Everything about a trace except its events. ``tracks`` are pairs of pid and tid, by number."""

    tracks: list[tuple[Any, Any]]
    header: dict[str, Any]
    repairs: list[str] = field(default_factory=list)
    base_ns: int = 0
    has_clock: bool = False
    spellings: list[tuple[Any, Any]] = field(default_factory=list)
    """Pid and tid of each track as the file first writes them: both "8" and 8 are 8 in ``tracks``.

    Events that write them differently have them in their ``fields``.
    """


@dataclass(slots=True)
class TraceEvents:
    """The events of a trace in the order of the file, with all columns, and everything else about it."""

    frame: pl.DataFrame
    about: TraceInfo


def build_events(
    frames: list[pl.DataFrame],
    texts: dict[str, list[bytes]],
    header: dict[str, Any],
    repairs: Sequence[str],
    name: str,
    health: Health | None = None,
) -> TraceEvents:
    """Build the trace whose rows are in ``frames``; the list is empty afterwards.

    Args:
        frames: blocks of rows from a scanner.
        texts: the strings of each column, by their numbers in the rows.
        header: fields of the file beside its events.
        repairs: sentences on repairs of the scanner.
        name: name of the file, for errors.
        health: counters of the scanner's findings.

    Raises:
        TraceFileError: without an event, or if a number in the header is out of range.
    """
    if not frames:
        raise TraceFileError(f"Cannot read the trace {name}: there is no event in it. {' '.join(repairs)}".rstrip())
    health = health or Health()
    header = header or _find_header_in_list(frames)
    validate_header(name, header)
    base_ns = _read_base_ns(header)
    dictionaries = _decode_dictionaries(texts)
    spellings = [decode_json_text(b"[" + track + b"]") for track in texts["track"][1:]]
    tracks, dictionaries["track"], others = _number_tracks(spellings)
    has_halves = any((frame["phase"] == half).any() for frame in frames for half in _HALVES)
    for index, frame in enumerate(frames):  # one by one, so that each old frame is freed before the next
        frames[index] = _decode_block(_add_other_spellings(frame, others), dictionaries, base_ns)
    frame = complete_frame(_concat_blocks(frames))
    frame = _drop_timeless(frame, base_ns, health)
    about = TraceInfo(list(tracks), header, list(repairs), base_ns, _has_clock(frame, base_ns), list(tracks.values()))
    trace = TraceEvents(frame, about)
    if has_halves:
        _pair_halves(trace)
    _find_mixed_ranks(trace, health)
    _find_overlaps(trace, health)
    about.repairs += health.repairs
    return trace


def _drop_timeless(frame: pl.DataFrame, base_ns: int, health: Health) -> pl.DataFrame:
    """Return the events without those that have lost their time, which are noted in ``health``."""
    is_timed = pl.col("ts").is_not_null() & (pl.col("kind") != "metadata")
    is_at_zero = is_timed & (pl.col("ts") == base_ns) & (pl.col("dur").fill_null(0) == 0)
    num_at_zero, first, earliest_ns = frame.select(
        is_at_zero.sum(),
        is_at_zero.arg_max().alias("first"),
        pl.col("ts").filter(is_timed & ~is_at_zero).min().alias("ns"),
    ).row(0)
    if not are_timeless(num_at_zero, None if earliest_ns is None else earliest_ns - base_ns):
        return frame
    health.num_timeless, health.first_timeless = num_at_zero, first + 1
    return frame.filter(~is_at_zero.fill_null(value=False))


def _find_mixed_ranks(trace: TraceEvents, health: Health) -> None:
    """Count in ``health`` the signs that several ranks were pasted into the file, unless it is a merged one."""
    fields = trace.about.header.get("kinetoscope")
    if isinstance(fields, dict) and fields.get("merged"):
        return
    spans = trace.frame.lazy().filter(pl.col("kind") == "span")
    steps = spans.filter((pl.col("name") == BATCH) | pl.col("name").str.starts_with(STEP))
    is_on_thread = pl.col("category").is_null() | (pl.col("category") != "gpu_user_annotation")
    steps = steps.filter(is_on_thread & (pl.col("dur") > 0)).select("track", "name", "ts", "dur").collect()
    of_loops = (((track, name == BATCH), ts, ts + dur) for track, name, ts, dur in steps.iter_rows())
    health.num_overlapping_steps = count_overlapping(of_loops)
    launches = spans.filter(pl.col("category").is_in(["cuda_runtime", "cuda_driver"]) & (pl.col("correlation") > 0))
    shared = launches.group_by("category", "correlation").len().select((pl.col("len") - 1).sum()).collect().item()
    health.num_shared_launches = shared or 0


def _find_overlaps(trace: TraceEvents, health: Health) -> None:
    """Count in ``health`` the spans of threads that overlap without nesting."""
    is_device = pl.col("category").is_in([*DEVICE_CATEGORIES, "gpu_user_annotation"]).fill_null(value=False)
    spans = trace.frame.lazy().filter((pl.col("kind") == "span") & pl.col("phase").cast(pl.String).is_in(["X", "B"]))
    spans = spans.filter(~is_device).select("ts", "dur", "track").drop_nulls().collect()
    beyond_ns = spans["dur"] - nest_spans(spans, clip=True)["dur"]
    beyond_ns = beyond_ns.filter(beyond_ns > _MIN_OVERLAP_NS)
    health.num_overlapping, health.overlapping_ns = len(beyond_ns), int(beyond_ns.sum())


def block_frame(block: Any) -> pl.DataFrame:
    """Return a block of a scanner as a frame, without copying it."""
    return pl.DataFrame([pl.Series(values=column).alias(column.name) for column in block])


def _schema(pl: Any) -> dict[str, Any]:
    texts, numbers = dict.fromkeys(TEXTS, pl.UInt32), dict.fromkeys(NUMBERS, pl.Int64)
    return {"phase": pl.UInt8} | texts | numbers | dict.fromkeys(BYTES, pl.Binary)


def _decode_dictionaries(texts: dict[str, list[bytes]]) -> dict[str, pl.Series]:
    """Return the strings that the numbers in each column stand for, except in the column of tracks."""
    dictionaries = {}
    for name in (*_STRINGS, *ARGUMENT_TEXTS):
        values = decode_texts(texts[name]) if name in _STRINGS else [_decode_argument(text) for text in texts[name]]
        if name != "name":
            values = [None, *values[1:]]
        dtype = pl.String if name in _STORED_AS_STRINGS else pl.Categorical
        dictionaries[name] = pl.Series(name, values, dtype=pl.String).cast(dtype)
    phases = [chr(code) for code in range(128)]
    dictionaries["phase"] = pl.Series("phase", phases, dtype=pl.String).cast(pl.Categorical)
    kinds = [_KIND_OF_PHASE.get(phase, "other") for phase in phases]
    dictionaries["kind"] = pl.Series("kind", kinds, dtype=pl.Enum(KINDS))
    return dictionaries


def _number_tracks(spellings: list[list[Any]]) -> tuple[dict[tuple[Any, Any], tuple[Any, Any]], pl.Series, pl.Series]:
    """Return the tracks, each with its pid and tid as first written.

    Old Kineto wrote "123" for the spans of a thread and 123 for its flows: both are 123.

    Returns:
        The tracks; for each spelling of a pid and tid, by its number, its track; and for each spelling the fields that
            an event gets if it is not the first spelling of that track.
    """
    thread_ids = [(_parse_number(pid), _parse_number(tid)) for pid, tid in spellings]
    tracks = {index: (pid, tid) for index, (pid, tid) in reversed(list(zip(thread_ids, spellings, strict=True)))}
    tracks = {index: tracks[index] for index in dict.fromkeys(thread_ids)}
    numbers = {index: number for number, index in enumerate(tracks)}
    others = [
        None if tracks[index] == (pid, tid) else json.dumps({"pid": pid, "tid": tid})[1:-1]
        for index, (pid, tid) in zip(thread_ids, spellings, strict=True)
    ]
    return (
        tracks,
        pl.Series("track", [0, *(numbers[index] for index in thread_ids)], dtype=pl.UInt32),
        pl.Series([None, *others], dtype=pl.String),
    )


def _add_other_spellings(frame: pl.DataFrame, others: pl.Series) -> pl.DataFrame:
    """Add pid and tid to the ``fields`` of events that do not use their track's first spelling."""
    if "track" not in frame.columns or others.null_count() == len(others):
        return frame
    thread_ids = others.gather(frame["track"].fill_null(0)).alias("places")
    given = pl.col("fields").cast(pl.String) if "fields" in frame.columns else pl.lit(None, dtype=pl.String)
    behind = pl.when(given.is_null()).then(pl.lit("}")).otherwise("," + given.str.slice(1))
    fields = pl.when(pl.col("places").is_null()).then(given).otherwise("{" + pl.col("places") + behind)
    return frame.with_columns(thread_ids).with_columns(fields.cast(pl.Binary).alias("fields")).drop("places")


def _decode_block(frame: pl.DataFrame, dictionaries: dict[str, pl.Series], base_ns: int) -> pl.DataFrame:
    """Return the block with strings instead of their numbers, with kinds, and with times that count from 1970."""
    missing = [pl.lit(None, dtype=pl.Int64).alias(name) for name in ("ts", "dur") if name not in frame.columns]
    codes = frame["phase"]
    frame = _close_open_ended(frame.with_columns(dictionaries["kind"].gather(codes), *missing))
    columns = [
        values[_without_nulls(frame[name])].alias(name)
        for name, values in dictionaries.items()
        if name in frame.columns and name != "kind"
    ]
    return frame.with_columns(pl.col("ts") + base_ns, *columns)


def _without_nulls(codes: pl.Series) -> pl.Series:
    return codes.fill_null(0) if codes.null_count() else codes


def _decode_argument(value: bytes) -> str:
    """Return an argument as a string: a string unchanged, anything else as compact JSON."""
    if not value:
        return ""
    decoded = decode_json_text(value)
    return decoded if isinstance(decoded, str) else json.dumps(decoded, ensure_ascii=False)


def _parse_number(value: Any) -> Any:
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= MAX_DIGITS
    return int(value) if is_number else value


def _has_clock(frame: pl.DataFrame, base_ns: int) -> bool:
    """Return whether times count from 1970, because the file has a base or its times are that large."""
    latest: Any = frame.select(pl.col("ts").filter(pl.col("kind") != "metadata").max()).item()
    return base_ns > 0 or (latest is not None and latest > UNIX_NS)


def _read_base_ns(header: dict[str, Any]) -> int:
    """Return the base of the file's times in unix nanoseconds; 0 if it has none."""
    base = header.get(_BASE_FIELD)
    try:
        number = int(base) if isinstance(base, (int, float, str)) else 0
    except (ValueError, OverflowError):
        return 0
    return number if 0 < number <= _MAX_BASE_NS else 0


def _find_header_in_list(frames: list[pl.DataFrame]) -> dict[str, Any]:
    """Return the header in the first metadata event of a bare list of ours; empty for other lists.

    Composer's merger adds an event or two before that one.
    """
    for frame in frames:
        first = frame.lazy().filter(pl.col("phase") == ord("M")).head(_MAX_EVENTS_BEFORE_HEADER + 1).collect()
        if len(first):
            found = map(decode_json_text, filter(None, first["args"] if "args" in first.columns else ()))
            return next((header for header in found if isinstance(header, dict) and _BASE_FIELD in header), {})
    return {}


def _pair_halves(trace: TraceEvents) -> None:
    """Add the durations of spans that are written as two events."""
    frame, repairs = trace.frame, trace.about.repairs
    halves = frame.select("phase", "ts", "track", "category", "id", "id_text").with_row_index("row")
    halves = halves.filter(pl.col("phase").cast(pl.String).is_in(list(map(chr, _HALVES))))
    halves = halves.drop_nulls("ts").sort("ts", maintain_order=True)
    last_ns: Any = frame["ts"].max()
    pairs = pair_halves(map(_describe_half, halves.iter_rows(named=True)), last_ns)
    durations = frame["dur"].rechunk().scatter(pairs.rows, pairs.durations)
    trace.frame = frame.with_columns(durations.alias("dur"))
    if pairs.num_lone_begins:
        repairs.append(f"{pairs.num_lone_begins} spans have no end: they were cut at the end of the trace.")
    if pairs.num_lone_ends:
        repairs.append(f"{pairs.num_lone_ends} ends have no begin: they were left out.")


def _describe_half(row: dict[str, Any]) -> tuple[int, Any, bool, int]:
    phase = row["phase"]
    key = row["track"] if phase in "BE" else (row.get("category"), row.get("id"), row.get("id_text"))
    return row["row"], key, phase in "BbS", row["ts"]


def _close_open_ended(frame: pl.DataFrame) -> pl.DataFrame:
    """Set the duration of ``X`` events without one to 0; one without a time is not a span."""
    is_whole = pl.col("phase") == ord("X")
    if not frame.select((is_whole & (pl.col("dur").is_null() | pl.col("ts").is_null())).any()).item():
        return frame
    other = pl.lit("other", dtype=frame.schema["kind"])
    return frame.with_columns(
        pl.when(is_whole).then(pl.col("dur").fill_null(0)).otherwise("dur").alias("dur"),
        pl.when(is_whole & pl.col("ts").is_null()).then(other).otherwise("kind").alias("kind"),
    )


def _concat_blocks(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the blocks without a copy; the list is empty afterwards.

    Every column is in a chunk for each block, also one that only some of the blocks have: where the chunks differ,
    polars copies the whole frame.
    """
    schema = {name: dtype for frame in frames for name, dtype in frame.schema.items()}
    for index, frame in enumerate(frames):
        lacking = {name: dtype for name, dtype in schema.items() if name not in frame.columns}
        nulls = [pl.Series(name, [None], dtype=dtype).new_from_index(0, len(frame)) for name, dtype in lacking.items()]
        frames[index] = frame.with_columns(nulls).select(list(schema))
    joined = pl.concat(frames, rechunk=False)
    frames.clear()
    return joined


def event_schema() -> dict[str, Any]:
    """Return the columns of a trace's events, in order, and their types."""
    wanted = {"kind": pl.Enum(KINDS), "phase": pl.Categorical} | _schema(pl) | {"phase": pl.Categorical}
    categories = dict.fromkeys(("id_text", *ARGUMENT_TEXTS), pl.Categorical)
    return wanted | categories | dict.fromkeys(_STORED_AS_STRINGS, pl.String)


def complete_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with all columns, in order, including those that no event has."""
    wanted = event_schema()
    if "name" not in frame.columns:
        frame = frame.with_columns(pl.lit("", dtype=pl.String).alias("name"))
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in wanted.items() if name not in frame.columns]
    return frame.with_columns(missing).select(list(wanted))


def pair_halves(halves: Iterable[tuple[int, Hashable, bool, int]], last_ns: int) -> Pairs:
    """Pair each end with the latest open begin of its key; begins that stay open end at ``last_ns``.

    A half is its row, its key (the track, or an id), whether it is a begin, and its time in nanoseconds.
    """
    pairs = Pairs()
    stacks: defaultdict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for row, key, is_begin, time_ns in halves:
        stack = stacks[key]
        if is_begin:
            stack.append((row, time_ns))
        elif stack:
            begin_row, begin_ns = stack.pop()
            pairs.rows.append(begin_row)
            pairs.durations.append(time_ns - begin_ns)
        else:
            pairs.num_lone_ends += 1
    for stack in stacks.values():
        pairs.num_lone_begins += len(stack)
        pairs.rows += [row for row, _ in stack]
        pairs.durations += [max(0, last_ns - begin_ns) for _, begin_ns in stack]
    return pairs
