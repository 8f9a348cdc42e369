"""analysis: where the time of each step went, on the host and on the device. One row per rank and step."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kinetoscope.analysis.intervals import Coverage, newly_covered_ns
from kinetoscope.analysis.memory import peaks
from kinetoscope.analysis.synchronisation import synchronising_calls
from kinetoscope.analysis.window import COMMUNICATION_CALLS, RankWindow, place_in
from kinetoscope.table.columns import import_polars

if TYPE_CHECKING:
    import polars as pl

_FETCH = r"^(event/dataloader$|enumerate\(DataLoader\)#)"
_EVALUATION = r"^event/eval$"
_FORWARD = r"^event/forward$"
_BACKWARD = r"^(event/backward$|autograd::engine::evaluate_function: )"
_OLD_BACKWARD = r"(Backward\d*$|^torch::autograd::AccumulateGrad$|^AccumulateGrad$)"
_OPTIMIZER = r"^Optimizer\.step#"
_OURS = r"^event/batch$"


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One step of one rank. Times are nanoseconds, memory bytes; what is not known is None.

    A device event belongs to the step in which its launch began.
    """

    rank: int | None
    step: int
    begin_ns: int
    duration_ns: int
    between_ns: int | None = None
    evaluation_ns: int | None = None
    data_wait_ns: int | None = None
    forward_ns: int | None = None
    backward_ns: int | None = None
    optimizer_ns: int | None = None
    sync_ns: int | None = None
    gc_ns: int | None = None
    python_ns: int | None = None
    communication_wait_ns: int | None = None
    device_busy_ns: int | None = None
    device_compute_ns: int | None = None
    device_communication_ns: int | None = None
    device_exposed_communication_ns: int | None = None
    device_idle_ns: int | None = None
    num_launches: int | None = None
    num_kernels: int | None = None
    peak_memory_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


def step_rows(window: RankWindow) -> list[StepRow]:
    """The rows of one window, in the order of time."""
    if not len(window.steps):
        return []
    steps = _Steps(window)
    columns = steps.gaps() | steps.phases() | steps.waits() | steps.device() | steps.memory()
    frame = window.steps.select("step", "begin", "end")
    rows = []
    values = {name: column for name, column in columns.items() if column is not None}
    for place, (number, begin_ns, end_ns) in enumerate(frame.iter_rows()):
        found = {name: column[place] for name, column in values.items()}
        rows.append(StepRow(rank=window.rank, step=number, begin_ns=begin_ns, duration_ns=end_ns - begin_ns, **found))
    return rows


class _Steps:
    """Works out the columns of a window's steps, each in one pass over the spans it needs."""

    def __init__(self, window: RankWindow) -> None:
        pl = import_polars()
        self._window = window
        self._begins, self._ends = window.steps["begin"], window.steps["end"]
        self._next_begins = self._begins.shift(-1).fill_null(self._ends.last())
        self._fetches = window.on_loop(window.named(_FETCH))
        self._evaluations = window.on_loop(window.named(_EVALUATION))
        self._is_ours = window.steps["is_ours"].any()
        self._pl = pl

    def gaps(self) -> "dict[str, pl.Series | None]":
        """The time from each step's end to the next one's begin, shared out: evaluation, waiting for data, the rest."""
        evaluation, busy = Coverage(self._evaluations), Coverage(self._evaluations, self._fetches)
        evaluated = evaluation.within(self._ends, self._next_begins)
        fetching = busy.within(self._ends, self._next_begins) - evaluated
        between = self._next_begins - self._ends - evaluated - fetching
        waited = self._inside(Coverage(self._fetches)) + fetching.shift(1).fill_null(0)
        return {
            "between_ns": between,
            "evaluation_ns": evaluated if self._is_ours or evaluation else None,
            "data_wait_ns": waited if self._fetches.height else None,
        }

    def phases(self) -> "dict[str, pl.Series | None]":
        """Forward, backward and optimizer: by spans of ours where there are some, else by what torch records."""
        window = self._window
        backward, optimizer = self._backward(), window.named(_OPTIMIZER)
        forward = window.on_loop(window.named(_FORWARD))
        if forward.height:
            in_forward = self._inside(Coverage(forward))
        else:
            others = (backward, optimizer, self._fetches)
            operators = window.on_loop(window.operators)
            in_forward = self._inside(Coverage(operators, *others)) - self._inside(Coverage(*others))
        has_forward = forward.height or window.operators.height
        return {
            "forward_ns": in_forward if has_forward else None,
            "backward_ns": self._inside(Coverage(backward)) if backward.height else None,
            "optimizer_ns": self._inside(Coverage(optimizer)) if optimizer.height else None,
        }

    def waits(self) -> "dict[str, pl.Series | None]":
        """Synchronising calls, collectives on the loop's thread, the garbage collector, and Python's own time."""
        pl, window = self._pl, self._window
        collectives = window.on_loop(window.named(COMMUNICATION_CALLS))
        synchronising = synchronising_calls(window)
        collections = window.host.filter(pl.col("category") == "gc")
        seen = (
            window.on_loop(window.operators),
            window.on_loop(window.runtime_calls),
            window.on_loop(synchronising),
            self._backward(),
            collectives,
            self._fetches,
        )
        has_operators = window.operators.height > 0
        return {
            "sync_ns": self._inside(Coverage(synchronising)) if window.runtime_calls.height else None,
            "gc_ns": self._inside(Coverage(collections)) if collections.height else None,
            "python_ns": self._ends - self._begins - self._inside(Coverage(*seen)) if has_operators else None,
            "communication_wait_ns": self._inside(Coverage(collectives)) if collectives.height else None,
        }

    def device(self) -> "dict[str, pl.Series | None]":
        """What the device did for each step: the events that were launched in it."""
        pl, window = self._pl, self._window
        if not window.device.height:
            return {}
        events = window.device.with_columns(place=place_in(window.steps, window.device["launch_begin"])).drop_nulls(
            "place"
        )
        kernels = pl.col("kind") != "copy"
        sums = (
            self._unions("device_busy_ns", events)
            .join(self._unions("device_compute_ns", events.filter(pl.col("kind") == "compute")), on="place", how="left")
            .join(
                self._unions("device_communication_ns", events.filter(pl.col("kind") == "communication")),
                on="place",
                how="left",
            )
            .join(self._unions("on_kernels", events.filter(kernels)), on="place", how="left")
            .join(
                events.group_by("place").agg(
                    kernels.sum().cast(pl.Int64).alias("num_kernels"),
                    pl.struct("launch_begin", "launch_track").n_unique().cast(pl.Int64).alias("num_launches"),
                    pl.col("begin").min().alias("first"),
                ),
                on="place",
                how="left",
            )
        )
        rows = pl.DataFrame({"place": range(len(self._begins))}, schema={"place": pl.UInt32})
        sums = rows.join(sums, on="place", how="left", maintain_order="left")
        counted = [name for name in sums.columns if name not in ("place", "first")]
        sums = sums.with_columns(pl.col(counted).fill_null(0))
        exposed = sums["on_kernels"] - sums["device_compute_ns"]
        idle = self._idle(sums["first"])
        return {name: sums[name] for name in counted if name != "on_kernels"} | {
            "device_exposed_communication_ns": exposed,
            "device_idle_ns": idle,
        }

    def memory(self) -> "dict[str, pl.Series | None]":
        """The most that was allocated in each step, on the device where it says so, else on the host."""
        return {"peak_memory_bytes": peaks(self._window)}

    def _idle(self, firsts: "pl.Series") -> "pl.Series":
        """From each step's first device event to the next one's, less all that is busy in between."""
        device = self._window.device
        until = firsts.shift(-1).backward_fill().fill_null(device["end"].max())
        return until - firsts - Coverage(device).within(firsts, until)

    def _unions(self, name: str, events: "pl.DataFrame") -> "pl.DataFrame":
        return events.group_by("place").agg(newly_covered_ns().sum().alias(name))

    def _inside(self, coverage: Coverage) -> "pl.Series":
        return coverage.within(self._begins, self._ends)

    def _backward(self) -> "pl.DataFrame":
        """Spans of the backward pass: the engine's, on any thread; in old traces those of its functions off the loop's
        thread."""
        pl, window = self._pl, self._window
        spans = window.named(_BACKWARD)
        return spans if spans.height else window.named(_OLD_BACKWARD).filter(pl.col("track") != window.loop_track)
