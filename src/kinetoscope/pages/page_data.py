"""pages: all that a page shows. The types of web/src/page_data.ts are made from these, by web/generate_types.py."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any


class Column:
    """Many numbers, which the page gets as bytes.

    ``data`` has the lowest byte of every number, then the next byte of every number, and so on, ``num_bytes`` of them:
    so they compress best. ``is_delta``: each number but the first is how much more it is than the one before; d is
    written as 2d, or as -2d - 1 below zero. Without it numbers are 0 or more.
    """

    def __init__(self, data: bytes, num_bytes: int, *, is_delta: bool = False) -> None:
        self.data = data
        self.num_bytes = num_bytes
        self.is_delta = is_delta

    @classmethod
    def of(cls, numbers: Iterable[int], *, is_delta: bool = False) -> "Column":
        """A column of these integers, 0 or more; of any with ``is_delta``."""
        written = list(numbers)
        if is_delta:
            steps = [number - before for before, number in pairwise([0, *written])]
            written = [2 * step if step >= 0 else -2 * step - 1 for step in steps]
        num_bytes = max(1, (max(written, default=0).bit_length() + 7) // 8)
        planes = (bytes((number >> 8 * index) & 255 for number in written) for index in range(num_bytes))
        return cls(b"".join(planes), num_bytes, is_delta=is_delta)

    def __len__(self) -> int:
        return len(self.data) // self.num_bytes if self.num_bytes else 0


@dataclass(frozen=True, kw_only=True)
class Track:
    """One track of a rank. ``kind`` is ``steps``, ``markers`` (our spans of one thread), ``thread``, ``samples`` (of a
    thread's stack) or ``stream``; tracks come by rank, in that order of kinds. ``process`` is the device of a stream,
    as in ``GPU 0``.

    ``row_begins`` has the first span of each row of boxes, and the end of the last row: a span lies below the one that
    contains it, and spans of one row do not overlap. ``num_left_out`` spans were too short to be shown."""

    rank: int | None
    kind: str
    name: str
    process: str
    row_begins: list[int]
    num_left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class Spans:
    """All spans, by track, row and begin. ``begins`` are nanoseconds after the page's origin; instants last 0 ns.

    ``names`` and ``categories`` are places in the timeline's ``texts``. The others have a place plus 1, and 0 for none:
    ``details`` in its ``details``, ``stacks`` in its ``stacks``, ``launches`` the span that launched it.
    """

    begins: Column
    durations: Column
    names: Column
    categories: Column
    details: Column
    stacks: Column
    launches: Column


@dataclass(frozen=True, kw_only=True)
class Flows:
    """Arrows from one span to another, by their places; ``names`` are places in the timeline's ``texts``."""

    sources: Column
    targets: Column
    names: Column


@dataclass(frozen=True, kw_only=True)
class Counter:
    """A number over time, as drawn below the tracks. Its values are ``values * scale``; ``unit`` may be empty."""

    rank: int | None
    name: str
    unit: str
    scale: float
    times: Column
    values: Column


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """Stacks of Python. Each has its innermost line, a place in the timeline's ``texts``, and the place plus 1 of the
    stack of the caller, 0 for none."""

    lines: Column
    callers: Column


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """How many spans are not shown, by track (its place) and by when they begin: in the ``cell_ns`` nanoseconds from
    ``cell_ns * cells`` on. In the order of tracks and cells."""

    cell_ns: int
    tracks: Column
    cells: Column
    counts: Column


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The tracks of all ranks. ``details`` are the arguments of spans. ``notes`` are sentences on what is not shown.
    ``windows`` are pairs of begin and end, in order: all that was recorded lies in them, and nothing between them."""

    texts: list[str]
    tracks: list[Track]
    spans: Spans
    flows: Flows
    counters: list[Counter]
    details: list[dict[str, Any]]
    stacks: Stacks
    notes: list[str]
    windows: list[list[int]] = field(default_factory=list)
    left_out: LeftOut | None = None


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What was alive at the peak, summed over allocations of one kind. ``line`` is the innermost line of source."""

    category: str
    name: str
    line: str | None
    step: int | None
    size_bytes: int
    num_allocations: int


@dataclass(frozen=True, kw_only=True)
class StepEnd:
    """What was alive as a step ended, ``time`` nanoseconds after the origin."""

    step: int
    time: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class MemoryOverTime:
    """The memory of one device of one rank; ``device`` is ``CPU``, ``device 0`` or a name of torch's, such as
    ``cuda:0``. ``sizes`` has bytes for each category, at each of ``times``, nanoseconds after the origin, and
    ``totals`` their sums; ``peak`` is the place of the most memory in them, and ``peak_bytes`` how much that is.
    ``step_ends`` has what was alive as each step ended."""

    rank: int | None
    device: str
    categories: list[str]
    times: Column
    sizes: list[Column]
    totals: Column
    peak: int
    peak_bytes: int
    alive_at_peak: list[Allocation]
    step_ends: list[StepEnd] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class FlameGraph:
    """Calls summed by who called whom. ``title`` says of what: nested operators, or stacks. Each frame has a name (a
    place in ``texts``), the place of its caller plus 1, its own time, and its time with callees, in nanoseconds.
    ``total_ns`` is the time of all that have no caller; ``firsts`` the order in which frames first began."""

    title: str
    rank: int | None
    texts: list[str]
    names: Column
    callers: Column
    own: Column
    total: Column
    total_ns: int
    num_calls: Column
    firsts: Column


@dataclass(frozen=True, kw_only=True)
class CallingLine:
    """All calls of one operator, or runs of one kernel, from one line of the user's code; None where there was none.
    ``kind`` is ``operator``, or that of the kernel. Times are nanoseconds."""

    kind: str
    name: str
    line: str | None
    num_calls: int
    total_ns: int
    self_ns: int
    mean_ns: float
    max_ns: int


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What the first view says of a run, beside what is in its report. Shares are parts of 1; None is not known.

    ``warnings`` are on an incomplete run or trace and on CPU contention, ``all_steps`` on all steps, recorded or not.
    ``bound`` is what a step takes its time for, and ``bound_side`` whose ledger says so, ``host`` or ``device``;
    ``no_findings`` are the sentences of a run without findings, and ``is_judged`` is whether faults were looked for. A
    device was busy for ``busy_share`` of its windows on average, and for ``least_busy_share`` on ``least_busy``.
    ``peak_rank`` has the most memory. ``costs`` and ``savings`` have the share of a step of each finding, in their
    order, ``fixes`` the code of the fix, "" without one; ``are_minor`` says which are worth one line.
    """

    warnings: list[str] = field(default_factory=list)
    all_steps: str = ""
    bound: str | None = None
    bound_side: str | None = None
    no_findings: list[str] = field(default_factory=list)
    is_judged: bool = True
    busy_share: float | None = None
    least_busy_share: float | None = None
    least_busy: str = ""
    num_devices: int = 0
    peak_bytes: int | None = None
    peak_rank: int | None = None
    peak_growth_bytes: float | None = None
    clock_bound_ns: int | None = None
    profiler_share: float | None = None
    costs: list[float | None] = field(default_factory=list)
    savings: list[float | None] = field(default_factory=list)
    fixes: list[str] = field(default_factory=list)
    are_minor: list[bool] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class BreakdownPart:
    """A part of a whole: its name in the report, what it is called, its time in nanoseconds, and its share of the
    whole. ``is_phase`` is whether every step of a training has it: then it is told that its time is not known."""

    part: str
    label: str
    time_ns: float | None
    share: float | None
    is_phase: bool = False


@dataclass(frozen=True, kw_only=True)
class RankBreakdown:
    """What a step of a rank takes, or one of the run if ``is_run``, on average, and both of its ledgers, with all
    parts. ``device`` is None where it is not known. ``stands_out`` is whether the rank is unlike most others, or is one
    of few that a finding names; such ranks come first."""

    rank: int | None
    is_run: bool
    step_ns: float
    host: list[BreakdownPart]
    device: list[BreakdownPart] | None
    stands_out: bool = False


@dataclass(frozen=True, kw_only=True)
class StepBreakdowns:
    """What the host and the device did in single steps. Each is nanoseconds plus 1, and 0 where it is not known.

    ``times`` are those of whole steps, and those of each ledger are parts of it, by name; ``work`` is forward,
    optimizer and Python; ``device`` is empty where no work of a device was recorded. Steps are those of the report's
    rows, in their order; with ``numbers``, each is the mean of all ranks' steps of that number.
    """

    numbers: list[int] = field(default_factory=list)
    times: Column
    work: Column
    host: dict[str, Column]
    device: dict[str, Column]


@dataclass(frozen=True, kw_only=True)
class DeviceTimes:
    """What a device did in its windows, or all devices on average if ``is_mean``: nanoseconds. ``busy_share`` is the
    mean of the devices' shares. ``parts`` add up to ``window_ns``; communication beside computing is in none of them.
    """

    rank: int | None
    device: int | None
    is_mean: bool
    window_ns: float
    busy_ns: float
    busy_share: float | None
    communication_ns: float
    idle_ns: float
    parts: list[BreakdownPart]


@dataclass(frozen=True, kw_only=True)
class CallGroup:
    """Collective calls of one group, name and size. With ``is_at_least``, sizes from ``bytes`` to twice that.
    ``total_ns`` are their lengths, from the first rank's begin to the last one's end, of which ``skew_ns`` is waiting
    for late ranks, ``transfer_ns`` transfer, and ``unknown_ns`` of calls for which both are not known."""

    group: str | None
    name: str
    bytes: int | None
    is_at_least: bool
    num_ranks: int
    num_calls: int
    total_ns: int
    skew_ns: int | None
    transfer_ns: int | None
    unknown_ns: int
    skew_share: float | None
    bandwidth_bytes_per_s: float | None
    parts: list[BreakdownPart]


@dataclass(frozen=True, kw_only=True)
class Communication:
    """The collective calls of a run: ``said`` in a sentence, in ``groups``, and the length of each call in the order of
    the report's rows. ``total_ns`` is ``skew_ns``, ``transfer_ns`` and ``unknown_ns``."""

    summary: str
    total_ns: int
    skew_ns: int
    transfer_ns: int
    unknown_ns: int
    parts: list[BreakdownPart]
    groups: list[CallGroup]
    lengths: Column


@dataclass(frozen=True, kw_only=True)
class DelayingRank:
    """A rank that others waited for in collectives: in so many calls, so long in sum over all that waited."""

    rank: int
    num_calls: int
    total_ns: int
    longest_ns: int


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How long ranks waited for each other in collectives: ``waited`` by rank that waited, then by rank that was late,
    in the order of ``ranks``. ``late`` has those for which most was waited first."""

    ranks: list[int]
    waited: list[list[int]]
    delaying: list[DelayingRank]


@dataclass(frozen=True, kw_only=True)
class CallSums:
    """The calls of one operator, or the runs of one kernel, or of all that have something in common: ``num_rows`` rows
    of the report together. Quantiles of several names together are not known. ``shapes`` are those of the only row that
    has some. Times are nanoseconds."""

    name: str
    kind: str | None
    shapes: str | None
    num_rows: int
    num_calls: int
    total_ns: int
    self_ns: int
    mean_ns: float
    p50_ns: int | None
    p95_ns: int | None
    max_ns: int
    device_ns: int | None
    flops: float | None
    flops_per_s: float | None
    mfu: float | None
    bytes: float | None
    bytes_per_s: float | None


@dataclass(frozen=True, kw_only=True)
class CallTable:
    """The operators of a run, or its ``kernels`` and copies, ``by`` what they have in common: ``name``, ``shapes``
    (name and shapes), ``untyped`` (a kernel's name without its types) or ``kind``."""

    of: str
    by: str
    rows: list[CallSums]


@dataclass(frozen=True, kw_only=True)
class TopCalls:
    """The operators or kernels with most time, per step of a rank: times in ns, shares of the step, and calls."""

    of: str
    names: list[str]
    times_ns: list[float]
    shares: list[float]
    num_calls: list[float]


@dataclass(frozen=True, kw_only=True)
class CallTotals:
    """The sums over calls of one ``kind``: all ``operators``, all ``kernels`` and copies, or those of one kind."""

    kind: str
    num_calls: int
    total_ns: int
    self_ns: int


@dataclass(frozen=True, kw_only=True)
class PageData:
    """All that a page shows. What is None, or empty, was not asked for or is not known.

    Times are nanoseconds after ``origin_ns``, unix nanoseconds as text, since a number of JavaScript has too few digits
    for them: also those in ``report``, which else is what `RunReport.to_dict` returns. ``notes`` are sentences.
    ``profiler_ns_per_step`` is what the profiler cost within a step, ``profiler_ns_around`` around those of a window.
    ``explanations`` has HTML for each kind of the report's findings, which is ours alone and has no links.
    ``part_labels`` says what the parts of a step are called; ``breakdowns`` are those of the run and of each rank,
    ``devices`` all together and each. ``straggler_sentences`` is what is said of each of the report's stragglers.
    """

    version: str
    title: str
    origin_ns: str = "0"
    notes: list[str] = field(default_factory=list)
    profiler_ns_per_step: float | None = None
    profiler_ns_around: float | None = None
    overview: Overview = field(default_factory=Overview)
    explanations: dict[str, str] = field(default_factory=dict)
    steps: StepBreakdowns | None = None
    mean_steps: StepBreakdowns | None = None
    part_labels: dict[str, str] = field(default_factory=dict)
    breakdowns: list[RankBreakdown] = field(default_factory=list)
    devices: list[DeviceTimes] = field(default_factory=list)
    communication: Communication | None = None
    waits: Waits | None = None
    straggler_sentences: list[str] = field(default_factory=list)
    call_totals: list[CallTotals] = field(default_factory=list)
    call_tables: list[CallTable] = field(default_factory=list)
    top_calls: TopCalls | None = None
    tensor_core_sentence: str | None = None
    comparison_summary: list[str] = field(default_factory=list)
    report: Annotated[dict[str, Any], "RunReport"] | None = None
    comparison: Annotated[dict[str, Any], "Comparison"] | None = None
    timeline: Timeline | None = None
    memory: list[MemoryOverTime] = field(default_factory=list)
    flame_graphs: list[FlameGraph] = field(default_factory=list)
    calling_lines: list[CallingLine] = field(default_factory=list)
