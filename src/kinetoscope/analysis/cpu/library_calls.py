"""Time of library functions where a library, such as a trainer, runs the training loop; from sampled stacks.

The user's line is then the call of ``train()`` for the whole run, so that the library's function is more useful.
"""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from kinetoscope.analysis.cpu.sampled_lines import WORKER_TRACK
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import find_innermost
from kinetoscope.analysis.windows.schemas import LIBRARY_CALLS
from kinetoscope.analysis.windows.source_lines import FRAME
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.trace_names import SAMPLED_STATE
from kinetoscope.frames.tracks import nest_spans

_FUNCTION = r"^(.+)\((\d+)\): (.*)$"
_LIBRARY = "library"
_MAX_FRAMES = 256
"""Largest depth of a stack that is followed below the user's line."""

_MIN_NAMED_SHARE = 0.5
"""The innermost function with more than this share of the time of the user's line is named."""

_MIN_SHARE_OF_ALL_SAMPLES = 0.995
"""A frame with this share of the sampled time counts as in every sample: it runs the loop. Judgement."""

_MIN_KEPT_SHARE = 0.25
"""Functions with a smaller share of the time of a line in one window are left out of its summary. Judgement."""

_MIN_LOOP_SHARE = 0.9
"""A user's frame calls the library that runs the loop if one function has this share of its time. Judgement."""


class LibraryCall(NamedTuple):
    """A function of a library, and its line with the most time."""

    function: str
    line: str


def library_calls(window: RankWindow, spans: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return the time of library functions that the user's lines around the loop called.

    Args:
        window: a window with sampled stacks.
        spans: spans (``begin``, ``end``) by kind.

    Returns:
        A frame with ``kind``, ``line``, ``function``, ``library_line``, ``total_ns``, and ``depth_ns``, the product of
            that time and the depth below the user's line. Rows without a function have the time of the line.
    """
    nothing = pl.DataFrame(schema=LIBRARY_CALLS)
    if not len(window.samples):
        return nothing
    frames = _loop_frames(window)
    intervals = _find_call_intervals(frames, window.steps)
    if not len(intervals):
        return nothing
    library_frames = _find_library_frames(frames, intervals)
    found = [nothing]
    for kind, of_kind in spans.items():
        time_ns = IntervalUnion(of_kind).overlap_ns(intervals["begin"], intervals["end"]).alias("time_ns")
        timed = intervals.select("interval", "line").with_columns(time_ns).filter(pl.col("time_ns") > 0)
        found.append(_sum_by_function(timed, library_frames).with_columns(kind=pl.lit(kind)).select(*LIBRARY_CALLS))
    return pl.concat(found)


def lines_in_every_sample(window: RankWindow) -> frozenset[str]:
    """Return the user's lines that are on the stack in every sample because they call a library that runs the loop.

    Such a line, as ``trainer.fit()``, does not show where the time goes.
    """
    if not len(window.samples):
        return frozenset()
    frames = _loop_frames(window)
    is_users = pl.col("name").str.contains(FRAME) & ~pl.col("category").str.contains(_LIBRARY)
    callers = _find_loop_callers(frames, window.steps)
    sampled_ns = IntervalUnion(frames).total_ns
    if not len(callers) or not sampled_ns:
        return frozenset()
    names = frames.filter(pl.col("row").is_in(callers.implode()))["name"].unique()
    by_name = frames.filter(is_users & pl.col("name").is_in(names.implode())).group_by("name").agg(pl.col("dur").sum())
    lines = by_name.filter(pl.col("dur") >= _MIN_SHARE_OF_ALL_SAMPLES * sampled_ns)["name"].str.replace(
        FRAME, "${1}:${2}"
    )
    return frozenset(lines.to_list())


def _loop_frames(window: RankWindow) -> pl.DataFrame:
    """Return the sampled frames of the loop's thread, without the states of the thread."""
    frames = window.samples
    tracks = window.trace.tracks.select("track", "thread").collect()
    workers = tracks.filter(pl.col("thread").str.contains(WORKER_TRACK))["track"]
    frames = frames.filter(~pl.col("track").is_in(workers.implode()))
    frames = frames.with_columns(pl.col("category").cast(pl.String), dur=pl.col("end") - pl.col("begin"))
    return frames.filter(pl.col("category") != SAMPLED_STATE).with_row_index("row")


def _find_loop_callers(frames: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return the rows of the user's frames that call a library which runs the loop."""
    is_users = pl.col("name").str.contains(FRAME) & ~pl.col("category").str.contains(_LIBRARY)
    users = frames.filter(is_users)
    return _filter_loop_callers(users.filter(_count_steps_inside(users, steps) > 0), frames)


def find_library_call(calls: pl.DataFrame, kind: str, line: str) -> LibraryCall | None:
    """Return the innermost function with most of the time of a line, of several windows; None if none has most."""
    of_line = calls.filter(kind=kind, line=line)
    all_ns = int(of_line.filter(pl.col("function").is_null())["total_ns"].sum())
    inside = of_line.drop_nulls("function").sort("total_ns", descending=True)
    by_function = inside.group_by("function").agg(
        pl.col("library_line").first(), pl.col("total_ns").sum(), pl.col("depth_ns").sum()
    )
    by_function = by_function.filter(pl.col("total_ns") > _MIN_NAMED_SHARE * all_ns)
    deepest = by_function.sort(pl.col("depth_ns") / pl.col("total_ns"), descending=True).head(1)
    return LibraryCall(deepest["function"][0], deepest["library_line"][0]) if len(deepest) else None


def library_call_of_stalls(stalls: pl.DataFrame, line: str) -> LibraryCall | None:
    """Return the library function in which most of the stalls of a line began; None if there is none.

    ``stalls`` has ``line``, ``library`` and ``num_calls``; those without a library do not count.
    """
    of_line = stalls.filter(pl.col("line") == line)
    frame = pl.col("library")
    by_line = of_line.filter(frame.str.contains(FRAME)).group_by(
        frame.str.replace(FRAME, "${1}:${2}").alias("library_line"),
        frame.str.replace(_FUNCTION, "${3}").alias("function"),
        frame.str.replace(_FUNCTION, "${1}").alias("file"),
    )
    lines = by_line.agg(pl.col("num_calls").sum()).sort("num_calls", "library_line", descending=[True, False])
    functions = lines.group_by("file", "function", maintain_order=True).agg(
        pl.col("library_line").first(), pl.col("num_calls").sum()
    )
    most = functions.filter(pl.col("num_calls") > _MIN_NAMED_SHARE * pl.lit(of_line["num_calls"].sum()))
    return LibraryCall(most["function"][0], most["library_line"][0]) if len(most) else None


def _find_call_intervals(frames: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the intervals of equal stacks in which the user's innermost line calls a library that runs the loop.

    They have ``begin``, ``end``, ``line``, and the rows of that line's frame, ``user``, and of the innermost one,
    ``inner``.
    """
    callers = _find_loop_callers(frames, steps)
    if not len(callers):
        return pl.DataFrame(schema=dict.fromkeys(("interval", "begin", "end", "line", "user", "inner"), pl.Int64))
    users = frames.filter(pl.col("name").str.contains(FRAME) & ~pl.col("category").str.contains(_LIBRARY))
    times = pl.concat([frames.select("track", begin="begin"), frames.select("track", begin="end")]).unique()
    times = times.sort("track", "begin").with_columns(end=pl.col("begin").shift(-1).over("track")).drop_nulls("end")
    middles = times.select("track", ts=(pl.col("begin") + pl.col("end")) // 2)
    of_user = find_innermost(users, middles)
    found = times.with_columns(
        line=users["name"].gather(of_user).str.replace(FRAME, "${1}:${2}"),
        user=users["row"].gather(of_user),
        inner=find_innermost(frames, middles),
    )
    return found.filter(pl.col("user").is_in(callers.implode())).drop("track").with_row_index("interval")


def _count_steps_inside(frames: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Return the number of whole steps inside of each frame."""
    ended = pl.Series(steps["end"].sort().search_sorted(frames["end"], side="right")).cast(pl.Int64)
    return ended - pl.Series(steps["begin"].sort().search_sorted(frames["begin"], side="left")).cast(pl.Int64)


def _filter_loop_callers(callers: pl.DataFrame, frames: pl.DataFrame) -> pl.Series:
    """Return the rows of the user's frames that are in one function of a library nearly all the time."""
    if not len(callers):
        return callers["row"]
    parent = nest_spans(frames.select("track", ts="begin", dur="dur"))["parent"]
    called = frames.select("category", lasts="dur", function=pl.col("name").str.replace(_FUNCTION, "${1} ${3}"))
    called = called.with_columns(parent.alias("row")).filter(pl.col("category").str.contains(_LIBRARY))
    totals = called.group_by("row", "function").agg(pl.col("lasts").sum())
    totals = callers.select("row", all_ns="dur").join(totals, on="row")
    return totals.filter(pl.col("lasts") >= _MIN_LOOP_SHARE * pl.col("all_ns"))["row"]


def _find_library_frames(frames: pl.DataFrame, intervals: pl.DataFrame) -> pl.DataFrame:
    """Return the functions of the library inside of the user's line in each interval.

    They have ``interval``, ``function``, ``library_line`` and ``depth``. Functions of others that the library calls,
    such as torch, are left out: they show less of the operation.
    """
    nested = nest_spans(frames.select("track", ts="begin", dur="dur"))
    frames = frames.with_columns(
        nested["parent"],
        nested["depth"],
        function=pl.col("name").str.replace(_FUNCTION, "${3}"),
        library_line=pl.col("name").str.replace(_FUNCTION, "${1}:${2}"),
        file=pl.col("name").str.replace(_FUNCTION, "${1}"),
    )
    climbing, found = intervals.select("interval", "user", row="inner"), []
    for _ in range(_MAX_FRAMES):
        climbing = climbing.filter(pl.col("row").is_not_null() & (pl.col("row") != pl.col("user")))
        if not len(climbing):
            break
        found.append(climbing.select("interval", "row"))
        climbing = climbing.with_columns(row=frames["parent"].gather(climbing["row"]))
    rows = pl.concat([intervals.select("interval", row="inner").clear(), *found])
    of_name = frames.group_by("name").agg(pl.col("dur").sum())
    always_on_stack = of_name.filter(pl.col("dur") >= _MIN_SHARE_OF_ALL_SAMPLES * IntervalUnion(frames).total_ns)[
        "name"
    ]
    is_call = pl.col("name").str.contains(FRAME) & ~pl.col("name").is_in(always_on_stack.implode())
    rows = rows.join(frames.filter(is_call).drop("begin", "end", "track"), on="row").sort("interval", "depth")
    package = pl.col("file").str.replace("/.*$", "")
    rows = rows.filter(package == package.first().over("interval"))
    return rows.unique(["interval", "file", "function"], keep="last")


def _sum_by_function(timed: pl.DataFrame, library_frames: pl.DataFrame) -> pl.DataFrame:
    """Return the time of lines, and of the functions with at least `_MIN_KEPT_SHARE` of it."""
    lines = timed.group_by("line").agg(total_ns=pl.col("time_ns").sum())
    inside = timed.join(library_frames, on="interval")
    by_line = inside.group_by("line", "file", "function", "library_line").agg(
        total_ns=pl.col("time_ns").sum(), depth_ns=(pl.col("time_ns") * pl.col("depth")).sum()
    )
    by_line = by_line.sort("total_ns", "library_line", descending=[True, False])
    calls = by_line.group_by("line", "file", "function", maintain_order=True).agg(
        pl.col("library_line").first(), pl.col("total_ns").sum(), pl.col("depth_ns").sum()
    )
    calls = calls.join(lines.select("line", all_ns="total_ns"), on="line")
    calls = calls.filter(pl.col("total_ns") >= _MIN_KEPT_SHARE * pl.col("all_ns"))
    return pl.concat([lines, calls.drop("all_ns", "file")], how="diagonal_relaxed").with_columns(
        pl.col("depth_ns").fill_null(0).cast(pl.Int64)
    )
