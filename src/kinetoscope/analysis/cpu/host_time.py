"""analysis: what the host's threads did: fetching, launching, Python, and waiting for each other."""

from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.cpu_operators import CPU_OPERATORS, are_for_data, find_cpu_operators
from kinetoscope.analysis.cpu.sampled_lines import ANOTHER_THREAD, RUNNING, sampled_lines
from kinetoscope.analysis.cpu.thread_states import LoopStates, SplitStretches, split_stretches
from kinetoscope.analysis.windows.columns import (
    all_the_same,
    at_least_0,
    columns_of,
    frame_of,
    known_rows,
    known_where,
    rows_where,
    with_constant,
)
from kinetoscope.analysis.windows.intervals import IntervalUnion, ended_before, num_begun, outer_times
from kinetoscope.analysis.windows.nesting import around, outermost, place_in
from kinetoscope.analysis.windows.span_names import (
    BACKWARD_FUNCTIONS,
    COMMUNICATION_CALLS,
    COMPILER,
    CPU_COLLECTIVES,
    EPOCH,
    EVALUATION,
    FETCH,
    FETCH_WITHOUT_WORKERS,
    NAMED_PHASES,
    OLD_BACKWARD_FUNCTIONS,
    OPERATORS,
    OPTIMIZER_STEP,
    PYTHON_FUNCTION,
    RECORDING,
    RUNTIME_CALLS,
    WORKER_TRACK,
    phase_pattern,
)
from kinetoscope.analysis.windows.window import MIN_RECURRING_STEPS, MIN_STEPS, RankWindow, decode_args
from kinetoscope.formats.own_names import LOADER

_FEWEST_EPOCHS, _LEAST_BATCHES = 2, 4
_IS_NAMED = ~pl.col("category").is_in([*OPERATORS, *RUNTIME_CALLS, PYTHON_FUNCTION])
"""Whether a span has a name to say what a step does: not with these categories."""

ORDINARY_PYTHON_NS = 100_000
"""Python before an operator takes up to this in healthy loops: modules, the begin of the backward pass, optimizers."""

SMALL_OPERATOR_NS = 10_000
"""A small operator takes less than this."""

_FEWEST_SMALL_IN_A_ROW = 32

_MOST_LATE_NS, _LITTLE_SHARE = 5_000_000, 0.1
"""A collective on the CPU may end so long after the pause in which the loop waited for it, and such a share of that."""

_LARGEST_NUMBER = 2**31 - 1
"""No number of a loader is larger, unless its trace is damaged."""

_OF_COMPILER = ", of the compiler"
"""So ends the name of a garbage collection that began while torch's compiler was running."""

_PARTS = ("data", "launch", "python", "spare_python", "blocked", "gc", "compile", "profiler", *CPU_OPERATORS)

_MANY_BEFORE_ONE = 32
"""So many stretches of Python in a step, all before operators of one name, are a loop in Python."""


class HostTime:
    """The spans of a window's host by what they are for. Those of the loop are on its thread, others on any."""

    def __init__(self, window: RankWindow) -> None:
        self.window = window

    @cached_property
    def fetches(self) -> pl.DataFrame:
        """The loop's waits for its next batch, without those of an evaluation.

        A wait that has two spans, torch's and one of ours around it, counts once.
        """
        fetches = self.window.on_loop(self.window.named(FETCH))
        fetches = outermost(fetches if len(fetches) else self.of_phase("data"))
        if not len(self.evaluations):
            return fetches
        evaluated = IntervalUnion(self.evaluations).overlap_ns(fetches["begin"], fetches["end"])
        return fetches.filter(evaluated < fetches["end"] - fetches["begin"])

    @cached_property
    def epoch_start_share(self) -> float | None:
        """How much of the waiting for data is for the first batch of an epoch; None with fewer than two such waits, or
        where epochs are so short that it is much of the waiting anyway."""
        epochs = self.window.on_loop(self.window.named(EPOCH))
        if len(epochs) < _FEWEST_EPOCHS:
            return None
        fetches, epochs = self.fetches.sort("begin"), epochs.select("begin").unique().sort("begin")
        firsts = epochs.join_asof(
            fetches.select("end", at="begin"), left_on="begin", right_on="at", strategy="forward", coalesce=False
        )
        firsts = firsts.drop_nulls("at").unique("at", keep="last")
        waited = (fetches["end"] - fetches["begin"]).sum()
        enough = len(firsts) >= _FEWEST_EPOCHS and len(fetches) >= _LEAST_BATCHES * len(firsts) and waited > 0
        return firsts.select((pl.col("end") - pl.col("at")).sum()).item() / waited if enough else None

    @cached_property
    def loader(self) -> dict[str, Any]:
        """How the loader is set up from which the loop fetches, as far as that was recorded; of several, the first."""
        notes = self.window.on_loop(self.window.notes_of(LOADER))
        if not len(notes):
            return {}
        is_outside = place_in(self.evaluations.sort("begin"), notes["ts"]).is_null()
        said = [*decode_args(notes.filter(is_outside)), {}][0]
        return {
            fact: value for fact, value in said.items() if not isinstance(value, int) or 0 <= value <= _LARGEST_NUMBER
        }

    @cached_property
    def num_workers(self) -> int | None:
        """How many workers the loop's loader has, or the trace shows; 0 where the loop made its batches itself."""
        if isinstance(said := self.loader.get("num_workers"), int):
            return said
        if len(self.window.named(FETCH_WITHOUT_WORKERS)):
            return 0
        names = pl.Series(sorted(self.window.trace.names_of_tracks), dtype=pl.String)
        return names.str.extract(WORKER_TRACK).drop_nulls().n_unique() or None

    @cached_property
    def evaluations(self) -> pl.DataFrame:
        """Evaluations within the loop."""
        return self.window.on_loop(self.window.named(EVALUATION))

    def of_phase(self, phase: str) -> pl.DataFrame:
        """The spans of the loop's thread whose name says that they are ``forward``, ``backward``, ``optimizer`` or
        ``data``."""
        spans = self.window.on_loop(self.window.named(phase_pattern(phase)))
        return spans.filter(_IS_NAMED) if len(spans) else spans

    def watched_phase(self, phase: str) -> pl.DataFrame:
        """The same as hooks of torch's told of it, without a word of the loop."""
        phases = self.window.watched_phases
        return rows_where(phases, phases["name"] == f"event/{phase}")

    @cached_property
    def named_phases(self) -> dict[str, pl.DataFrame]:
        """Those spans of ``forward``, ``backward`` and ``optimizer``."""
        return {phase: self.of_phase(phase) for phase in NAMED_PHASES}

    @property
    def forward(self) -> pl.DataFrame:
        """Spans that say that they are the forward pass, if there are some."""
        return self.named_phases["forward"]

    @cached_property
    def backward(self) -> pl.DataFrame:
        """The backward pass: the engine's spans, or, in old traces, its functions off the loop's thread."""
        spans = self.window.named(BACKWARD_FUNCTIONS)
        if len(spans):
            return spans
        spans = self.window.named(OLD_BACKWARD_FUNCTIONS)
        return rows_where(spans, spans["track"] != self.window.loop_track)

    @cached_property
    def optimizer(self) -> pl.DataFrame:
        """The optimizer's steps. Where a hook of the optimizer ends the loop's step, torch's span of it is on another
        track, since it does not nest in the step: then what hooks told stands for all of them."""
        spans, watched = self.window.named(OPTIMIZER_STEP), self.watched_phase("optimizer")[["begin", "end"]]
        if len(self.window.on_loop(spans)) == len(spans) or not len(watched):
            return spans
        return with_constant(watched, "track", self.window.loop_track, pl.UInt32)

    @cached_property
    def collectives(self) -> pl.DataFrame:
        """The loop's calls of collectives."""
        return self.window.on_loop(self.window.named(COMMUNICATION_CALLS))

    @cached_property
    def waits_for_calls(self) -> pl.DataFrame:
        """Where the loop's thread waits for a collective on the CPU: ``track``, ``begin`` and ``end`` of a call, or a
        pause, in which one ends; ``row``, that of the collective; and ``waited_until``, when it ended.

        A pause in which a collective ends counts if most of it was before that, or if it follows the backward pass, at
        whose end DDP waits for its buckets; else the loop may as well have computed something in Python.
        """
        if len(self.window.device):
            times = dict.fromkeys(("begin", "end", "waited_until"), pl.Int64)
            return pl.DataFrame(schema={**times, "track": pl.UInt32, "row": pl.UInt32})
        track = pl.lit(self.window.loop_track, dtype=pl.UInt32)
        pauses = self.pauses.select("begin", "end", track=track)
        places = pl.concat([self.collectives[["begin", "end", "track"]], pauses]).sort("end")
        events = self.calls_as_events.with_row_index("row").select("row", waited_until="end", at="end").sort("at")
        waits = places.join_asof(events, left_on="end", right_on="at", strategy="backward").drop("at")
        is_long = pl.col("waited_until") - pl.col("begin") >= pl.col("end") - pl.col("waited_until")
        is_in = pl.col("waited_until") > pl.col("begin")
        return waits.filter(is_in & (is_long | pl.col("begin").is_in(self.backward["end"].implode())))

    @cached_property
    def communication(self) -> pl.DataFrame:
        """The loop's time in collective calls, and its waits for them."""
        calls, waits = self.collectives[["begin", "end"]], self.waits_for_calls
        return pl.concat([calls, columns_of(waits, "begin", end="waited_until")]) if len(waits) else calls

    @cached_property
    def collections(self) -> pl.DataFrame:
        """Runs of Python's garbage collector, with the ``line`` at which each began, and the function of the
        ``library`` that this line had called, if that was recorded."""
        return self.window.of_source("gc", "line", "library")

    @cached_property
    def garbage(self) -> pl.DataFrame:
        """Those of them that are not for what torch's compiler made, which is a part of compiling."""
        return rows_where(self.collections, ~self._are_of_compiler)

    @cached_property
    def _are_of_compiler(self) -> pl.Series:
        pauses = self.collections
        if not len(pauses):
            return pl.Series(dtype=pl.Boolean)
        compiles = around(self.compilations[["track", "begin", "end"]], pauses["track"], pauses["begin"])
        names = pauses["name"].cast(pl.String).str
        return compiles["end"].is_not_null() | names.ends_with(_OF_COMPILER).fill_null(False)

    @cached_property
    def compilations(self) -> pl.DataFrame:
        """Compilations, with the ``line`` of what was compiled and the ``guard`` that failed, if that was recorded;
        else the outermost spans that torch has of its compiler, of which neither is known."""
        noted = self.window.of_source("compile", "line", "guard")
        if len(noted) or not len(spans := self.window.named(COMPILER)):
            return noted
        unknown = (all_the_same(column, None, pl.String, len(spans)) for column in ("line", "guard"))
        return outermost(spans.hstack([*unknown]))

    @cached_property
    def profiling(self) -> pl.DataFrame:
        """What the profiler itself did, of spans of ours."""
        return self.window.of_category("kinetoscope")

    @cached_property
    def synchronising(self) -> pl.DataFrame:
        """Calls that wait for the device: those named ``*Synchronize``, and those of a copy that returned after their
        copy had ended on the device."""
        calls, device = self.window.runtime_calls, self.window.device
        waits = calls["name"].str.ends_with("Synchronize")
        copies = rows_where(device[["correlation", "end"]], device["kind"] == "copy")
        if len(copies):
            copies = copies.group_by("correlation").agg(copied=pl.col("end").max())
            copied = calls[["correlation"]].join(copies, on="correlation", how="left", maintain_order="left")["copied"]
            waits |= calls["end"] >= copied
        return rows_where(calls, waits)

    @cached_property
    def cpu_operators(self) -> dict[str, pl.DataFrame]:
        """The stretches of `find_cpu_operators`, by part."""
        found = find_cpu_operators(
            self.window,
            (self.collections, self.compilations, self.profiling),
            elsewhere=IntervalUnion(self.fetches, self.evaluations),
            optimizing=self.optimizing,
        )
        return {part: rows_where(found, found["part"] == part) for part in CPU_OPERATORS}

    @cached_property
    def are_for_data(self) -> pl.Series:
        """A flag for each of the calls that are ``synchronising``: the CPU needs the data that it waits for."""
        operators = [*self.cpu_operators.values()]
        return are_for_data(self.synchronising, self.window.device, operators).alias("is_for_data")

    @cached_property
    def optimizing(self) -> IntervalUnion:
        """The time of the optimizer."""
        return IntervalUnion(self.optimizer, self.of_phase("optimizer"))

    @cached_property
    def busy(self) -> IntervalUnion:
        """All of the loop's time that is not Python's own."""
        window = self.window
        calls = map(window.on_loop, (window.runtime_calls, self.synchronising))
        return window.operating.union(*calls, self.visits, self.communication, self.fetches)

    @cached_property
    def pauses(self) -> pl.DataFrame:
        """The stretches (``begin``, ``end``) between operators and runtime calls of the loop's thread."""
        window = self.window
        return window.operating.union(window.on_loop(window.runtime_calls)).gaps

    @cached_property
    def visits(self) -> pl.DataFrame:
        """Work that the loop's thread waited for on another one, as the backward pass on autograd's: ``track``,
        ``begin`` and ``end`` there, and ``paused_from`` and ``paused_until`` of the loop's thread, which did nothing
        that was recorded meanwhile."""
        window, pauses = self.window, self.pauses
        calls = [frame[["track", "begin", "end"]] for frame in (window.operators, window.runtime_calls)]
        others = pl.concat([rows_where(frame, frame["track"] != window.loop_track) for frame in calls])
        others = known_rows(others.hstack([place_in(pauses, others["begin"]).alias("pause")]), "pause")
        visits = others.group_by("track", "pause").agg(pl.col("begin").min(), pl.col("end").max()).sort("begin")
        paused = (
            pauses[side][visits["pause"]].alias(f"paused_{word}")
            for side, word in (("begin", "from"), ("end", "until"))
        )
        visits = visits[["track", "begin", "end"]].hstack([*paused])
        return rows_where(visits, visits["end"] <= visits["paused_until"])

    @cached_property
    def calls_as_events(self) -> pl.DataFrame:
        """Collectives on the CPU as if they were a device's events: each of their threads is a stream."""
        window = self.window
        calls = self._ended_in_time(window.named(CPU_COLLECTIVES)).sort("begin")
        launches = window.named(r"^c10d::").select(
            launch_begin="begin", launch_end="end", launch_track="track", launch_name="name"
        )
        events = _with_calls_on_host(calls, launches.sort("launch_begin"))
        return events.with_columns(
            kind=pl.lit("communication"), device=pl.lit(-1, dtype=pl.Int64), stream=pl.col("track").cast(pl.Int64)
        ).select(window.device.columns)

    def _ended_in_time(self, calls: pl.DataFrame) -> pl.DataFrame:
        """Collectives of other threads; one that the loop has waited for ends with that pause at the latest.

        Such a thread wakes the loop before its own span ends, and on a busy machine the loop may be the first to go on.
        """
        ends = calls.select(ended="end").sort("ended")
        pauses = self.pauses.sort("end").join_asof(ends, left_on="end", right_on="ended", coalesce=False)
        pauses = pauses.filter((pl.col("ended") <= pl.col("begin")).fill_null(True))[["begin", "end"]]
        calls = calls.with_row_index("call")
        next_ends = calls.select("call", called="begin", ended="end").sort("ended")
        pauses = pauses.join_asof(next_ends, left_on="end", right_on="ended", strategy="forward", coalesce=False)
        little_ns = _LITTLE_SHARE * (pl.col("end") - pl.col("begin"))
        is_late = pl.col("ended") - pl.col("end") <= pl.min_horizontal(little_ns, _MOST_LATE_NS)
        is_of_call = pl.col("called") - pl.col("begin") <= little_ns
        woken = pauses.filter(is_late & is_of_call).group_by("call").agg(woken=pl.col("end").min())
        return (
            calls.join(woken, on="call", how="left").with_columns(end=pl.coalesce("woken", "end")).drop("call", "woken")
        )

    @cached_property
    def knows_operators(self) -> bool:
        """Whether operators were recorded that are the loop's own. A loop may hand its steps to another thread, of
        which torch records nothing: then there are only those with which the loop makes its batches."""
        window = self.window
        if not len(window.operators) or len(window.device) or len(window.operators) > len(window.loop_operators):
            return len(window.operators) > 0
        begins, ends = (window.operating.pieces[side] for side in ("begin", "end"))
        return bool((IntervalUnion(self.fetches).overlap_ns(begins, ends) < ends - begins).any())

    @cached_property
    def samples(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The samples of the loop's thread, and of workers while they make batches that are not of an evaluation. Where
        no operators were recorded, a wait for another thread within torch counts as running: its threads may be
        computing."""
        loop, workers = sampled_lines(self.window)
        if len(workers) and len(self.evaluations):
            workers = workers.filter(IntervalUnion(self.evaluations).overlap_ns(workers["at"], workers["at"] + 1) == 0)
        if not len(loop):
            return loop, workers
        is_computing = (pl.col("state") == ANOTHER_THREAD) & pl.col("call").str.contains(r" of torch/")
        is_computing &= pl.lit(not self.knows_operators)
        state = pl.when(is_computing.fill_null(False)).then(pl.lit(RUNNING)).otherwise("state")
        return loop.with_columns(state.alias("state")), workers

    @cached_property
    def states(self) -> LoopStates:
        """What the clocks of the loop's thread said."""
        return LoopStates(self.window)

    @cached_property
    def _not_own(self) -> IntervalUnion:
        others = (self.collections, self.compilations, self.profiling, self.evaluations)
        return self.busy.union(*map(self.window.on_loop, others))

    @cached_property
    def _not_python(self) -> IntervalUnion:
        return self._not_own.union(self._not_recorded)

    @cached_property
    def own_time(self) -> pl.DataFrame:
        """The stretches (``begin``, ``end``) of the loop's thread in which nothing that was recorded, or that it
        waited for, took its time: Python, and where torch recorded no operators these as well."""
        window = self.window
        if self.knows_operators or not len(window.steps):
            return self.python
        whole = self._not_own.union(window.steps)
        return self._not_own.complement(*outer_times(whole.pieces)).pieces[["begin", "end"]]

    @cached_property
    def _not_recorded(self) -> pl.DataFrame:
        """The stretch (``begin``, ``end``) in which torch did not record operators yet, or ever: what the loop's thread
        did in it is not known."""
        host = self.window.host
        first, last = (pl.lit(value, pl.Int64) for value in (host["begin"].min(), host["end"].max()))
        if not self.knows_operators:
            return pl.select(begin=first, end=last).drop_nulls()
        return self.recordings.head(1).select(begin=first, end=pl.max_horizontal("begin", first))

    @cached_property
    def recordings(self) -> pl.DataFrame:
        """The spans of torch's recordings."""
        return self.window.named(RECORDING)

    @cached_property
    def python(self) -> pl.DataFrame:
        """The stretches (``begin``, ``end``) of the loop's thread in which only Python was busy."""
        return self._not_python.gaps

    @cached_property
    def own_stretches(self) -> SplitStretches:
        """The loop's `own_time`, of which only a part may have been running: each stretch with the ``name`` of the
        operator of the loop's thread that follows at once, if one does."""
        operators = columns_of(self.window.loop_operators, "name", at="begin")
        pauses = self.own_time.join_asof(operators, left_on="end", right_on="at", strategy="forward", coalesce=False)
        pauses = pauses[["begin", "end"]].hstack([known_where(pauses["name"], pauses["at"] == pauses["end"])])
        waits = IntervalUnion(self.fetches if self.num_workers else self.fetches.clear(), self.communication)
        return split_stretches(pauses, self.states, self.samples[0], waits)

    @cached_property
    def python_before(self) -> pl.DataFrame:
        """Python that ran, with the ``name`` of the operator of the loop's thread that follows at once, if one does."""
        running = self.own_stretches.running
        return running if self.knows_operators else running.clear()

    @property
    def unrecorded(self) -> pl.DataFrame:
        """The loop's own time in which it ran, where no operators were recorded that would say what it did."""
        running = self.own_stretches.running
        return running.clear() if self.knows_operators else running

    @cached_property
    def spare_python(self) -> pl.DataFrame:
        """As much of those stretches as a loop could do without. On the CPU, where operators begin at once, each needs
        some Python before it: a stretch counts from `ORDINARY_PYTHON_NS` on, or whole if it is one of many in a step
        before the same operator, as in a loop over elements. It counts only before operators that it comes before in
        `MIN_RECURRING_STEPS` steps, and for as long as it lasts in that many: a busy machine stops a loop anywhere, and
        one time slice is no pattern. What a device waits for counts whole."""
        stretches, window = self.python_before, self.window
        if len(window.device):
            return stretches
        is_in_loop = pl.col("name").is_not_null() & (pl.len().over("name") >= _MANY_BEFORE_ONE * len(window.steps))
        ordinary = pl.when(is_in_loop).then(0).otherwise(ORDINARY_PYTHON_NS)
        spare = stretches.with_columns(begin=pl.col("begin") + ordinary).filter(pl.col("begin") < pl.col("end"))
        if len(window.steps) < MIN_STEPS:
            return spare
        spare = spare.with_columns(
            place=pl.Series(window.steps["end"].search_sorted(spare["end"])), length=pl.col("end") - pl.col("begin")
        )
        longest = spare.group_by("name", "place").agg(pl.col("length").max())
        recurring = (
            longest.group_by("name")
            .agg(pl.col("length").sort(descending=True))
            .filter(pl.col("length").list.len() >= MIN_RECURRING_STEPS)
            .select("name", recurs_ns=pl.col("length").list.get(MIN_RECURRING_STEPS - 1))
        )
        spare = spare.join(recurring, on="name", nulls_equal=True, maintain_order="left")
        spare = spare.with_columns(begin=pl.max_horizontal("begin", pl.col("end") - pl.col("recurs_ns")))
        return spare.drop("place", "length", "recurs_ns")

    @cached_property
    def small_operators(self) -> pl.DataFrame:
        """Without a device: the small operators of the loop's thread of which many come one after the other, each with
        the Python before it. Those of the backward pass are left out: there are many where the forward pass had many.

        An operator is small by the median of its name, since one call takes long if a sampler stops it in its middle;
        one that calls others is small if it takes as little for each of them.
        """
        if len(self.window.device):
            return self.window.loop_operators.clear().select("begin", "end", "name", "track")
        small = self._small_by_name
        before = ended_before()
        is_first = small.select((pl.col("begin") - before >= ORDINARY_PYTHON_NS).fill_null(True)).to_series()
        firsts = is_first.arg_true().cast(pl.Int64)
        is_long = firsts.extend_constant(len(small), 1).diff().drop_nulls() >= _FEWEST_SMALL_IN_A_ROW
        begin = pl.when(is_first).then("begin").otherwise(pl.min_horizontal("begin", before))
        runs = small.select(begin, "end", "name").filter(is_long.gather(is_first.cum_sum() - 1))
        return runs.with_columns(track=pl.lit(self.window.loop_track, dtype=pl.UInt32))

    @property
    def _small_by_name(self) -> pl.DataFrame:
        window = self.window
        operators = window.loop_operators.select("begin", "end", name="label")
        each_ns = (operators["end"] - operators["begin"]) / num_begun(operators["begin"], operators["end"])
        medians = operators.select("name", each_ns=each_ns).group_by("name").agg(pl.col("each_ns").median())
        small = medians.filter(pl.col("each_ns") < SMALL_OPERATOR_NS)["name"]
        operators = operators.filter(pl.col("name").is_in(small.implode()))
        if not len(self.backward):
            return operators
        return operators.filter(IntervalUnion(self.backward).overlap_ns(operators["begin"], operators["end"]) == 0)

    @cached_property
    def ordinary_python(self) -> dict[str, int]:
        """How much of those stretches operators of each name need before them, in ns, in the whole window."""
        stretches = known_rows(self.python_before, "name")
        stretches = frame_of(stretches["name"], (stretches["end"] - stretches["begin"]).alias("length"))
        ordinary = rows_where(stretches, stretches["length"] < ORDINARY_PYTHON_NS)
        return dict(ordinary.group_by("name").agg(pl.col("length").sum()).iter_rows())

    def parts(self, stretches: pl.DataFrame) -> pl.DataFrame:
        """Of each of ``stretches`` of threads (``track``, ``begin``, ``end``), how many nanoseconds were spent with
        ``data``, ``launch``, ``python``, ``blocked``, ``gc``, ``compile``, ``profiler`` and `CPU_OPERATORS`;
        ``spare_python`` is a part of ``python``."""
        stretches = stretches[["track", "begin", "end"]].with_row_index("row")
        found = [
            of_track[["row"]].hstack(self._parts(track, of_track["begin"], of_track["end"]))
            for (track,), of_track in stretches.partition_by("track", as_dict=True).items()
        ]
        schema = {"row": pl.UInt32} | dict.fromkeys(_PARTS, pl.Int64)
        return pl.concat([pl.DataFrame(schema=schema), *found]).sort("row")[[*_PARTS]]

    def _parts(self, track: object, begins: pl.Series, ends: pl.Series) -> pl.DataFrame:
        unions = {
            part: IntervalUnion(rows_where(spans, spans["track"] == track) if len(spans) else spans)
            for part, spans in self._of_threads.items()
        }
        if track == self.window.loop_track:
            unions |= self._of_loop
        parts = {part: unions.get(part, IntervalUnion()).overlap_ns(begins, ends) for part in _PARTS}
        if "python" in unions:
            parts["python"] = at_least_0(ends - begins - parts["python"])
        return pl.DataFrame(parts)

    @cached_property
    def _of_threads(self) -> dict[str, pl.DataFrame]:
        """The parts of the time of any thread."""
        others = {"gc": self.garbage, "compile": self._compiling, "profiler": self.profiling}
        return {"launch": self._launching} | others | self.cpu_operators

    @cached_property
    def _of_loop(self) -> dict[str, IntervalUnion]:
        """The parts of the time of the loop's thread only; for ``python`` all that is not."""
        split = self.own_stretches
        return {
            "data": IntervalUnion(self._undelayed_fetches),
            "python": IntervalUnion(self._not_python.pieces, split.blocked, split.starved),
            "spare_python": IntervalUnion(self.spare_python),
            "blocked": IntervalUnion(split.blocked),
        }

    @property
    def _undelayed_fetches(self) -> pl.DataFrame:
        """The fetches. Where the loop makes its batches itself, those longer than the median are without their part of
        the time in which the loop waited for a CPU: no fix of the loader saves that."""
        fetches = self.fetches[["begin", "end"]]
        if self.num_workers != 0 or not len(fetches) or not len(self.states.readings):
            return fetches
        lengths = fetches["end"] - fetches["begin"]
        undelayed = lengths * (1 - self.states.starved_share(fetches["begin"] + lengths // 2))
        usual = lengths.clip(upper_bound=int(lengths.median() or 0))  # pyright: ignore[reportArgumentType]
        is_delayed = undelayed < usual
        kept = undelayed.round().cast(pl.Int64).zip_with(~is_delayed, usual)
        return fetches.with_columns((fetches["begin"] + kept).alias("end"))

    @cached_property
    def _compiling(self) -> pl.DataFrame:
        compilations = self.compilations[["track", "begin", "end"]]
        others = rows_where(self.collections[["track", "begin", "end"]], self._are_of_compiler)
        return pl.concat([compilations, others]) if len(others) else compilations

    @cached_property
    def _launching(self) -> pl.DataFrame:
        """Calls that launched something on a device: ``track``, ``begin`` and ``end``."""
        calls = self.window.runtime_calls
        return rows_where(calls[["track", "begin", "end"]], self.window.has_launched)


def _with_calls_on_host(calls: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    """Each of ``calls`` with the call on the host that launched it: they wait in a queue, so that the first one has
    launched the first. Those without one were in flight when the recording began. Where that cannot be, it is the one
    that came last before."""
    num_in_flight = len(calls) - len(launches)
    if len(launches) and num_in_flight >= 0:
        launched = calls[num_in_flight:].hstack(launches)
        if (launched["launch_begin"] <= launched["begin"]).all():
            return pl.concat([calls[:num_in_flight], launched], how="diagonal")
    return calls.join_asof(launches, left_on="begin", right_on="launch_begin")
