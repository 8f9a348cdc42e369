"""analysis: which line of the user's code was executing, where stacks were sampled, and how sure that is."""

import math
from typing import NamedTuple

import polars as pl

from kinetoscope.analysis.windows import schemas
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.analysis.windows.nesting import find_innermost
from kinetoscope.analysis.windows.source_lines import FRAME
from kinetoscope.analysis.windows.span_names import WORKER_TRACK
from kinetoscope.analysis.windows.window import RankWindow
from kinetoscope.formats.own_names import LATE, SAMPLE, SAMPLED_EVERY, SAMPLED_STATE, WAITS
from kinetoscope.frames.tracks import nest_spans

_MIN_SAMPLES = 5
"""A line with fewer samples may be chance, unless nearly all samples agree on it."""

_MIN_CERTAIN_SHARE = 0.25
"""They agree if the line is surely executing in this part of the steps."""

_ERROR_PROBABILITY = 0.05
_NUM_HALVINGS = 30
_INTERVAL = f"^{SAMPLED_EVERY}$".format(r"([\d.]+)")
_DEFAULT_INTERVAL_MS = 10.0
_MIN_INTERVAL_MS = 0.01
_MAX_SAMPLES_IN_SPAN = 100_000
"""What is below or beyond these is no sampling, but a damaged trace, whose samples would fill the memory."""

RUNNING = "running"
"""The state of samples of a thread that ran, or would have if it had had a processor; one that is `LATE` ran, too."""

ANOTHER_THREAD = "another thread"
"""The state of a thread that waits for another one, at a lock, a queue or a join."""

MAX_LATE_SHARE = 0.5
"""Where a larger share of the samples of a line was read late, another line may have run."""

_MIN_TITLE_SHARE = 0.5
"""A title names a line from this share of the time on."""

_WAITS = f"^{WAITS}(.+)$"
_CALL = r"^.*?([^/]+/[^/]+|[^/]+)\(\d+\): (.+)$"
_MIN_STRETCH_NS = 5_000  # the frames of one sample begin within 2 microseconds, one after the other
_LIBRARY = "library"
_FETCHING = r"(^|/)torch/utils/data/_utils/fetch\.py\("


class SampledLine(NamedTuple):
    """The line with most of some sampled time.

    ``share`` is its share of that time, and ``at_least`` the share with 95 % confidence, from the samples that were
    read in time. In the ``late_share`` of its samples, code shortly before the line may have run instead. Both are None
    where the recording does not show which samples were late.
    """

    line: str
    share: float
    at_least: float | None
    late_share: float | None

    @property
    def is_late(self) -> bool:
        """Whether code before the line may have run in most of its samples."""
        return self.late_share is None or self.late_share > MAX_LATE_SHARE

    @property
    def is_title(self) -> bool:
        """Whether a title may name this line."""
        return self.share >= _MIN_TITLE_SHARE and not self.is_late


def sampled_lines(window: RankWindow) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The samples of the loop's thread, and of workers while they make batches.

    Each has ``at``, when it was taken, ``line``, the innermost of the user's lines (null if none of the user's code was
    running), ``call``, the function of a library that this line has called (null for none), and ``lasts_ns``, for how
    long it counts: until the next sample. ``state`` is what the thread waited for, `RUNNING` if for nothing, or `LATE`
    if it ran on until its line was read; null where the system does not say.
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
    """Where samples show that a ``worker`` made a batch, ``begin`` and ``end``; and the time from one sample to the
    next."""
    tracks = window.trace.tracks.select("track", worker=pl.col("thread").str.extract(WORKER_TRACK)).collect()
    frames = window.samples.filter(pl.col("name").str.contains(_FETCHING))
    frames = frames.join(tracks.drop_nulls("worker"), on="track")
    return frames.select("worker", "begin", "end"), _sampling(window).interval_ns


def is_line_certain(num_samples: int, num_steps: int, num_all_steps: int) -> bool:
    """Whether a line that so many samples in ``num_steps`` hit, of ``num_all_steps`` with samples, was no chance.

    Few samples are enough where nearly all steps agree: 3 of 3, or 4 of 5. Samples of one step may all have hit the
    same disturbance, so a step counts once.
    """
    return (
        num_samples >= _MIN_SAMPLES or share_lower_bound(num_steps / num_all_steps, num_all_steps) >= _MIN_CERTAIN_SHARE
    )


def share_lower_bound(share: float, num_samples: int) -> float:
    """What a share that was seen in so many independent samples is at least, with 95 % confidence: Chernoff's bound for
    the binomial distribution."""
    low, high = 0.0, share
    for _ in range(_NUM_HALVINGS):
        middle = (low + high) / 2
        if num_samples * _relative_entropy(share, middle) > -math.log(_ERROR_PROBABILITY):
            low = middle
        else:
            high = middle
    return low


def _relative_entropy(seen: float, share: float) -> float:
    """The relative entropy of two shares, in nats."""
    pairs = (seen, share), (1 - seen, 1 - share)
    return sum(one * math.log(one / other) for one, other in pairs if one > 0)


class _Sampling(NamedTuple):
    """What the samplers say of themselves: about how long it is from one sample to the next, and the tracks of threads
    whose states the system tells."""

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
    """Return the samples that were taken while a worker made a batch."""
    found = [pl.DataFrame(schema=schemas.SAMPLES)]
    is_fetch = pl.col("name").str.contains(_FETCHING)
    for of_track in frames.partition_by("track"):
        samples = _samples(of_track, sampling)
        is_fetching = IntervalUnion(of_track.filter(is_fetch)).covers(samples["at"])
        found.append(samples.filter(is_fetching))
    return pl.concat(found)


def _samples(frames: pl.DataFrame, sampling: _Sampling) -> pl.DataFrame:
    """One row for each sample, of any track. Equal ones in a row were recorded as one span, which is cut again."""
    if not len(frames):
        return pl.DataFrame(schema=schemas.SAMPLES)
    lasts_ns = pl.col("end") - pl.col("begin")
    number = (lasts_ns / sampling.interval_ns).round().clip(1, _MAX_SAMPLES_IN_SPAN).cast(pl.Int64)
    samples = _stack_stretches(frames, sampling.state_tracks).with_columns(number=number, lasts_ns=lasts_ns // number)
    samples = samples.with_columns(index=pl.int_ranges(0, "number")).explode("index")
    at = pl.col("begin") + pl.col("index") * pl.col("lasts_ns")
    return samples.select("line", "call", "state", "lasts_ns", at=at).sort("at")


def _stack_stretches(frames: pl.DataFrame, state_tracks: pl.Series) -> pl.DataFrame:
    """The stretches (``begin``, ``end``) between changes of stacks, with the innermost of the user's lines."""
    times = pl.concat([frames.select("track", begin="begin"), frames.select("track", begin="end")]).unique()
    times = times.sort("track", "begin").with_columns(end=pl.col("begin").shift(-1).over("track")).drop_nulls("end")
    times = times.filter(pl.col("end") - pl.col("begin") > _MIN_STRETCH_NS)
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
    """The function of a library that the innermost of the user's lines has called; that line is there ``since``."""
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
    """What the thread waited for, `RUNNING` or `LATE`; null on tracks of which no state is told, or where a name says
    nothing, as after redaction: then nobody knows which of the other samples ran."""
    is_readable = (pl.col("name") == LATE) | pl.col("name").str.contains(_WAITS)
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
