"""Source lines in sampled stacks, with the confidence of their shares."""

import math
from typing import NamedTuple

import polars as pl

from kinetoscope.analysis.windows import schemas
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import find_innermost
from kinetoscope.analysis.windows.source_lines import FRAME
from kinetoscope.analysis.windows.span_names import WORKER_TRACK
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.trace_names import LATE_LINE, SAMPLE, SAMPLED_EVERY, SAMPLED_STATE, WAITS_PREFIX
from kinetoscope.frames.tracks import nest_spans

_MIN_SAMPLES = 5
"""A line with fewer samples may be noise, unless nearly all samples agree on it."""

_MIN_CERTAIN_SHARE = 0.25
"""Samples agree if the line runs in this share of the steps, with 95 % confidence."""

_ERROR_PROBABILITY = 0.05
"""Probability of error of the bounds of a share: the usual 95 % confidence."""

_NUM_HALVINGS = 30
"""Halvings of the interval of a lower bound: its error is below 1e-9."""

_INTERVAL = f"^{SAMPLED_EVERY}$".format(r"([\d.]+)")
_DEFAULT_INTERVAL_MS = 10.0
"""Time between two samples, in ms, if the trace does not have it."""

_MIN_INTERVAL_MS = 0.01
_MAX_SAMPLES_IN_SPAN = 100_000
"""Limits of a sampling. Beyond them the trace is damaged, and its samples would fill the memory."""

RUNNING = "running"
"""The state of samples of a thread that ran, or was ready to; one that is `LATE` ran, too."""

ANOTHER_THREAD = "another thread"
"""The state of a thread that waits for another one, at a lock, a queue or a join."""

IN_TORCH = "within torch"
"""The state of a thread that waits for another one within torch, where no operators were recorded: that may compute."""

MAX_LATE_SHARE = 0.5
"""Where a larger share of the samples of a line was read late, another line may have run."""

_MIN_TITLE_SHARE = 0.5
"""A title names a line from this share of the time on."""

_WAITS = f"^{WAITS_PREFIX}(.+)$"
_CALL = r"^.*?([^/]+/[^/]+|[^/]+)\(\d+\): (.+)$"
_MIN_TIME_BETWEEN_STACKS_NS = 5_000  # the frames of one sample begin within 2 microseconds, one after the other
_LIBRARY = "library"
_FETCHING = r"(^|/)torch/utils/data/_utils/fetch\.py\("


class SampledLine(NamedTuple):
    """The line with most of some sampled time.

    ``share`` is its share of that time, and ``min_share`` its lower bound with 95 % confidence, from the samples that
    were read in time. In the ``late_share`` of its samples, code shortly before the line may have run instead. Both are
    None where the recording does not show which samples were late.
    """

    line: str
    share: float
    min_share: float | None
    late_share: float | None

    @property
    def is_late(self) -> bool:
        """True if code before the line may have run in most of its samples."""
        return self.late_share is None or self.late_share > MAX_LATE_SHARE

    @property
    def fits_title(self) -> bool:
        """True if a title may name this line."""
        return self.share >= _MIN_TITLE_SHARE and not self.is_late


def sampled_lines(window: RankWindow) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the samples of the loop's thread, and those of workers while they build batches.

    Returns:
        Two frames with ``at``, the time of a sample; ``line``, the innermost of the user's lines (null if none was
            running); ``call``, the function of a library that this line has called (null for none); ``lasts_ns``, the
            time until the next sample; and ``state``, the object of the thread's wait, `RUNNING` without a wait, or
            `LATE` if it ran on until its line was read (null where the system does not report it).
    """
    frames = window.samples
    if not len(frames):
        return (nothing := pl.DataFrame(schema=schemas.SAMPLES)), nothing
    sampling = _sampling(window)
    tracks = window.trace.tracks.select("track", "thread").collect()
    workers = tracks.filter(pl.col("thread").str.contains(WORKER_TRACK))["track"]
    is_of_worker = pl.col("track").is_in(workers.implode())
    loop, of_workers = frames.filter(~is_of_worker), frames.filter(is_of_worker)
    return _samples(loop, sampling), _samples_in_fetches(of_workers, sampling)


def find_worker_batches(window: RankWindow) -> tuple[pl.DataFrame, float]:
    """Return the spans in which samples show a ``worker`` building a batch, and the ns between two samples."""
    tracks = window.trace.tracks.select("track", worker=pl.col("thread").str.extract(WORKER_TRACK)).collect()
    frames = window.samples.filter(pl.col("name").str.contains(_FETCHING))
    frames = frames.join(tracks.drop_nulls("worker"), on="track")
    return frames.select("worker", "begin", "end"), _sampling(window).interval_ns


def is_line_certain(num_samples: int, num_steps: int, num_all_steps: int) -> bool:
    """Return whether the samples of a line are beyond noise.

    Few samples are enough where nearly all steps agree: 3 of 3, or 4 of 5. Samples of one step may all have hit the
    same disturbance, so a step counts once.

    Args:
        num_samples: samples of the line.
        num_steps: steps with samples of the line.
        num_all_steps: steps with samples.
    """
    return (
        num_samples >= _MIN_SAMPLES or share_lower_bound(num_steps / num_all_steps, num_all_steps) >= _MIN_CERTAIN_SHARE
    )


def share_lower_bound(share: float, num_samples: int) -> float:
    """Return the lower bound of a share seen in independent samples, with 95 % confidence.

    It is Chernoff's bound for the binomial distribution.
    """
    low, high = 0.0, share
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        if num_samples * _relative_entropy(share, middle) > -math.log(_ERROR_PROBABILITY):
            low = middle
        else:
            high = middle
    return low


def _relative_entropy(seen: float, share: float) -> float:
    """Return the relative entropy of two shares, in nats."""
    pairs = (seen, share), (1 - seen, 1 - share)
    return sum(one * math.log(one / other) for one, other in pairs if one > 0)


class _Sampling(NamedTuple):
    """The settings of the samplers: the ns between two samples, and the tracks of threads whose states are recorded."""

    interval_ns: float
    state_tracks: pl.Series


def _sampling(window: RankWindow) -> _Sampling:
    instants = window.trace.instants.filter(pl.col("category").str.starts_with(SAMPLE))
    instants = instants.select("track", "name", pl.col("category").cast(pl.String)).collect()
    recorded_ms = instants["name"].str.extract(_INTERVAL).cast(pl.Float64, strict=False).drop_nulls()
    recorded_ms = recorded_ms.filter(recorded_ms >= _MIN_INTERVAL_MS)
    interval_ns = 1e6 * (float(recorded_ms[0]) if len(recorded_ms) else _DEFAULT_INTERVAL_MS)
    return _Sampling(interval_ns, instants.filter(category=SAMPLED_STATE)["track"])


def _samples_in_fetches(frames: pl.DataFrame, sampling: _Sampling) -> pl.DataFrame:
    """Return the samples of workers in the fetch of a batch."""
    found = [pl.DataFrame(schema=schemas.SAMPLES)]
    is_fetch = pl.col("name").str.contains(_FETCHING)
    for of_track in frames.partition_by("track"):
        samples = _samples(of_track, sampling)
        is_fetching = IntervalUnion(of_track.filter(is_fetch)).covers(samples["at"])
        found.append(samples.filter(is_fetching))
    return pl.concat(found)


def _samples(frames: pl.DataFrame, sampling: _Sampling) -> pl.DataFrame:
    """Return a row per sample, of any track. Equal samples in a row were recorded as one span, which is split again."""
    if not len(frames):
        return pl.DataFrame(schema=schemas.SAMPLES)
    lasts_ns = pl.col("end") - pl.col("begin")
    number = (lasts_ns / sampling.interval_ns).round().clip(1, _MAX_SAMPLES_IN_SPAN).cast(pl.Int64)
    samples = _stack_intervals(frames, sampling.state_tracks).with_columns(number=number, lasts_ns=lasts_ns // number)
    samples = samples.with_columns(index=pl.int_ranges(0, "number")).explode("index")
    at = pl.col("begin") + pl.col("index") * pl.col("lasts_ns")
    return samples.select("line", "call", "state", "lasts_ns", at=at).sort("at")


def _stack_intervals(frames: pl.DataFrame, state_tracks: pl.Series) -> pl.DataFrame:
    """Return the intervals (``begin``, ``end``) between changes of stacks, with the innermost of the user's lines."""
    times = pl.concat([frames.select("track", begin="begin"), frames.select("track", begin="end")]).unique()
    times = times.sort("track", "begin").with_columns(end=pl.col("begin").shift(-1).over("track")).drop_nulls("end")
    times = times.filter(pl.col("end") - pl.col("begin") > _MIN_TIME_BETWEEN_STACKS_NS)
    middles = times.select("track", ts=(pl.col("begin") + pl.col("end")) // 2)
    frames = frames.with_columns(pl.col("category").cast(pl.String))
    is_state = pl.col("category") == SAMPLED_STATE
    states, frames = frames.filter(is_state), frames.filter(~is_state)
    is_users = pl.col("name").str.contains(FRAME) & ~pl.col("category").str.contains(_LIBRARY)
    users = frames.filter(is_users)
    row = find_innermost(users, middles)
    found = times.select("begin", "end").with_columns(
        users["name"].gather(row).str.replace(FRAME, "${1}:${2}").alias("line"),
        _calls(frames, middles, users["begin"].gather(row)),
        _states(states, middles, state_tracks),
    )
    return found.filter(find_innermost(frames, middles).is_not_null())


def _calls(frames: pl.DataFrame, middles: pl.DataFrame, since: pl.Series) -> pl.Series:
    """Return the library function that the innermost of the user's lines has called; that line is there ``since``."""
    is_library = pl.col("category").str.contains(_LIBRARY)
    rows = frames.select("track", ts="begin", dur=pl.col("end") - pl.col("begin"))
    parents = nest_spans(rows)["parent"] if len(rows) else pl.Series("parent", [], dtype=pl.Int64)
    caller = frames["category"].gather(parents).alias("caller")
    calls = frames.with_columns(caller).filter(is_library & ~pl.col("caller").str.contains(_LIBRARY))
    row = find_innermost(calls, middles)
    found = pl.DataFrame([calls["name"].gather(row), calls["begin"].gather(row), since.alias("since")])
    name = pl.when(pl.col("begin") >= pl.col("since")).then("name").str.replace(_CALL, "${2} of ${1}")
    return found.select(name.alias("call"))["call"]


def _states(states: pl.DataFrame, middles: pl.DataFrame, state_tracks: pl.Series) -> pl.Series:
    """Return the object of the thread's wait, `RUNNING` or `LATE_LINE`.

    It is null on tracks without states, and on those with an unreadable name, as after redaction: then it is unknown
    which of the other samples ran.
    """
    is_readable = (pl.col("name") == LATE_LINE) | pl.col("name").str.contains(_WAITS)
    readable = states.group_by("track").agg(is_readable.all())
    known, unknown = (
        pl.concat([state_tracks, readable.filter("name")["track"]]),
        readable.filter(~pl.col("name"))["track"],
    )
    name = states["name"].gather(find_innermost(states, middles)).alias("name")
    is_known = middles["track"].is_in(known.implode()) & ~middles["track"].is_in(unknown.implode())
    state = pl.coalesce(pl.col("name").str.extract(_WAITS), pl.col("name"), pl.lit(RUNNING))
    rows = name.to_frame().with_columns(is_known.alias("is_known"))
    return rows.select(pl.when("is_known").then(state).alias("state"))["state"]
