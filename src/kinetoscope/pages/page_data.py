"""Data of the report page; web/generate_types.py writes its types into web/src/page_data.ts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

from msgspec import UNSET, UnsetType


class Column:
    """Integers as byte planes, which compress well.

    ``data`` has the lowest byte of every number, then the next byte of every number, up to ``num_bytes``. With
    ``is_delta`` each number but the first is the difference from the one before, written as 2d, or as -2d - 1 below
    zero; otherwise numbers are 0 or more.
    """

    def __init__(self, data: bytes, num_bytes: int, *, is_delta: bool = False) -> None:
        self.data = data
        self.num_bytes = num_bytes
        self.is_delta = is_delta

    @classmethod
    def of(cls, numbers: Iterable[int], *, is_delta: bool = False) -> "Column":
        """Return a column of integers from 0; of any integers with ``is_delta``."""
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
    """A track of a rank, in the order of ranks and kinds.

    ``kind`` is ``steps``, ``markers`` (Kinetoscope's spans of one thread), ``modules`` (its calls of torch modules),
    ``thread``, ``samples`` (of a thread's stack) or ``stream``, in this order. ``process`` is the device of a stream,
    as in ``GPU 0``. ``row_begins`` has the first span of each row, and the end of the last row: spans are below their
    parents and do not overlap in a row.
    ``num_left_out`` spans are hidden.
    """

    rank: int | None
    kind: str
    name: str
    process: str
    row_begins: list[int]
    num_left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class Spans:
    """All spans, by track, row and start. ``begins`` are nanoseconds after the page's origin; instants have 0 ns.

    ``names`` and ``categories`` are indices of the timeline's ``texts``. The others have an index plus 1, 0 for none:
    ``details`` in its ``details``, ``stacks`` in its ``stacks``, ``launches`` the launching span, and ``modules`` the
    row of the page's modules that each belongs to, where calls of modules were recorded.
    """

    begins: Column
    durations: Column
    names: Column
    categories: Column
    details: Column
    stacks: Column
    launches: Column
    modules: Column | UnsetType = UNSET


@dataclass(frozen=True, kw_only=True)
class Flows:
    """Arrows between spans, by their indices; ``names`` are indices of the timeline's ``texts``."""

    sources: Column
    targets: Column
    names: Column


@dataclass(frozen=True, kw_only=True)
class Counter:
    """Values over time below the tracks: ``values * scale``; ``unit`` may be empty."""

    rank: int | None
    name: str
    unit: str
    scale: float
    times: Column
    values: Column


@dataclass(frozen=True, kw_only=True)
class Stacks:
    """Python stacks: the innermost line and the stack of its caller.

    ``lines`` are indices of the timeline's ``texts``, ``callers`` indices of stacks plus 1, 0 for none.
    """

    lines: Column
    callers: Column


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Numbers of hidden spans by index of the track and start: in the ``cell_ns`` nanoseconds from ``cell_ns * cells``.

    They are in the order of tracks and cells.
    """

    cell_ns: int
    tracks: Column
    cells: Column
    counts: Column


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The tracks of all ranks. ``details`` are arguments of spans, ``notes`` sentences on hidden spans.

    ``windows`` are pairs of start and end, in order; nothing was recorded between them.
    """

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
    """Live memory at the peak, summed by source. ``line`` is the innermost source line."""

    category: str
    name: str
    line: str | None
    step: int | None
    size_bytes: int
    num_allocations: int


@dataclass(frozen=True, kw_only=True)
class StepEnd:
    """Live memory at the end of a step, ``time`` nanoseconds after the origin."""

    step: int
    time: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class MemoryOverTime:
    """Memory of one device of one rank; ``device`` is ``CPU``, ``device 0`` or a torch device such as ``cuda:0``.

    ``sizes`` has bytes per category at each of ``times``, nanoseconds after the origin, and ``totals`` their sums.
    ``peak`` is the index of the largest total, ``peak_bytes`` its size; ``step_ends`` has the live bytes after each
    step.
    """

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
    """Calls of one thread summed by call path; ``title`` names their kind: nested operators, or stacks.

    ``thread`` is its name, None where no other thread has calls of this kind.

    Each frame has a name (an index of ``texts``), the index of its caller plus 1, its self time and its total time in
    nanoseconds. ``total_ns`` is the time of all frames without a caller; ``firsts`` the order of their first calls.
    """

    title: str
    rank: int | None
    thread: str | None = None
    texts: list[str]
    names: Column
    callers: Column
    self_ns: Column
    total: Column
    total_ns: int
    num_calls: Column
    firsts: Column


@dataclass(frozen=True, kw_only=True)
class CallingLine:
    """All calls of one operator or kernel from one source line of the user; None where there was none.

    ``kind`` is ``operator``, or that of the kernel. Times are nanoseconds.
    """

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
    """First view of a run, in addition to its report. Shares are fractions of 1; None is unknown.

    ``warnings`` are on an incomplete run or trace and on CPU contention, ``all_steps`` on all steps, recorded or not.
    ``bound`` is the limit of the step time, and ``bound_side`` the side of its breakdown, ``host`` or ``device``.
    ``no_findings`` are the sentences of a run without findings. A device was busy for ``busy_share`` of its windows on
    average, and for ``min_busy_share`` on ``min_busy_device``. ``peak_rank`` has the most memory. ``costs`` and
    ``savings`` have shares of the step for each finding, ``fixes`` its code, "" without one; ``are_minor`` marks those
    that are worth one line. ``saving_basis`` is a sentence on the step that savings are shares of, "" if it is the
    recorded one.
    """

    warnings: list[str] = field(default_factory=list)
    all_steps: str = ""
    bound: str | None = None
    bound_side: str | None = None
    no_findings: list[str] = field(default_factory=list)
    busy_share: float | None = None
    min_busy_share: float | None = None
    min_busy_device: str = ""
    num_devices: int = 0
    peak_bytes: int | None = None
    peak_rank: int | None = None
    peak_growth_bytes: float | None = None
    profiler_share: float | None = None
    costs: list[float | None] = field(default_factory=list)
    savings: list[float | None] = field(default_factory=list)
    fixes: list[str] = field(default_factory=list)
    are_minor: list[bool] = field(default_factory=list)
    saving_basis: str = ""


@dataclass(frozen=True, kw_only=True)
class BreakdownPart:
    """A part of a whole: its name in the report, label, time in nanoseconds, and share of the whole.

    ``is_phase``: every training step has it, so an unknown time is reported.
    """

    part: str
    label: str
    time_ns: float | None
    share: float | None
    is_phase: bool = False


@dataclass(frozen=True, kw_only=True)
class RankBreakdown:
    """Mean time breakdowns of a step of a rank, or of the run if ``is_run``, with all parts.

    ``device`` is None if unknown. ``stands_out``: the rank differs from the median rank, or few ranks are named with it
    by a finding; such ranks come first.
    """

    rank: int | None
    is_run: bool
    step_ns: float
    host: list[BreakdownPart]
    device: list[BreakdownPart] | None
    stands_out: bool = False


@dataclass(frozen=True, kw_only=True)
class StepBreakdowns:
    """Time breakdowns of single steps, as nanoseconds plus 1, 0 if unknown.

    ``times`` has whole steps, ``host`` and ``device`` have a column per part; ``work`` is forward, optimizer
    and Python overhead. ``device`` is empty without recorded GPU work. Steps are in the order of the report's rows;
    with ``numbers``, each is the mean over all ranks of the step of that number.
    """

    numbers: list[int] = field(default_factory=list)
    times: Column
    work: Column
    host: dict[str, Column]
    device: dict[str, Column]


@dataclass(frozen=True, kw_only=True)
class ComparedPart:
    """A part of the step of two runs in nanoseconds, with its change and the verdict on it, None if it has no row.

    ``is_shown``: it is long enough in one of the runs to have an entry below the bars.
    """

    part: str
    label: str
    before_ns: float | None
    after_ns: float | None
    change: float | None
    verdict: str | None
    is_shown: bool


@dataclass(frozen=True, kw_only=True)
class ComparedSide:
    """Time breakdowns of two runs on one side of the step. ``max_total_ns`` is the length of the longer bar."""

    label: str
    max_total_ns: float
    parts: list[ComparedPart]


@dataclass(frozen=True, kw_only=True)
class DeviceTimes:
    """Times of a device in its windows in nanoseconds; the mean of all devices if ``is_mean``.

    ``parts`` add up to ``window_ns``; overlapped communication is in none of them.
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
    """Collective calls of one group, name and size; with ``is_at_least``, sizes from ``bytes`` to twice that.

    ``total_ns`` is the time from the first rank's start to the last one's end. It is the sum of ``skew_ns``, the wait
    for late ranks, ``transfer_ns``, and ``unknown_ns`` of calls without both.
    """

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
    """Collective calls of a run: a ``summary``, and the calls in ``groups``.

    ``lengths`` has the time of each call, in the order of the report's rows. ``total_ns`` is the sum of ``skew_ns``,
    ``transfer_ns`` and ``unknown_ns``.
    """

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
    """A rank that others waited for in collectives: the calls, and the time summed over the waiting ranks."""

    rank: int
    num_calls: int
    total_ns: int
    max_ns: int


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Waiting times of ranks for each other in collectives, the longest delays first in ``delaying``.

    ``waited`` is indexed by the waiting rank, then by the late rank, in the order of ``ranks``.
    """

    ranks: list[int]
    waited: list[list[int]]
    delaying: list[DelayingRank]


@dataclass(frozen=True, kw_only=True)
class CallSums:
    """Sums over ``num_rows`` rows of the report that share a name, kind or shapes. Times are nanoseconds.

    Quantiles of several names together are unknown. ``shapes`` is set for a single row only.
    """

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
    share_of_step: float | None = None


@dataclass(frozen=True, kw_only=True)
class CallTable:
    """The ``operators`` of a run, or its ``kernels`` and copies, grouped ``by`` a property.

    This is ``name``, ``shapes`` (name and shapes), ``untyped`` (a kernel's name without its types) or ``kind``.
    """

    of: str
    by: str
    rows: list[CallSums]


@dataclass(frozen=True, kw_only=True)
class TopCalls:
    """The operators or kernels with most time, per step of a rank: times in ns, shares of the step, and calls.

    Without a step time, ``shares`` are empty, and times and calls are of the whole recording.
    ``basis`` is a sentence on steps in them that the step time leaves out, "" where these are like the others.
    """

    of: str
    names: list[str]
    times_ns: list[float]
    shares: list[float]
    num_calls: list[float]
    basis: str = ""


@dataclass(frozen=True, kw_only=True)
class CallTotals:
    """Sums over the calls of one ``kind``: all ``operators``, all ``kernels`` and copies, or one kind of kernel."""

    kind: str
    num_calls: int
    total_ns: int
    self_ns: int


@dataclass(frozen=True, kw_only=True)
class Module:
    """A torch module, several repeated blocks, or time that belongs to no module.

    ``level`` is the depth in the tree: a row is inside the last one before it with a smaller level. ``names`` are the
    qualified names; ``outlier`` is a sentence on the only block that differs from the others, "" without one. Numbers
    are means per step of a rank, None where unknown: nanoseconds, bytes, FLOPs and calls, with the modules inside.
    ``time_ns`` is the sum of the other times, without communication on the CPU; ``share`` is its share of the step.
    """

    title: str
    class_name: str | None
    names: list[str]
    level: int
    outlier: str
    time_ns: float | None
    share: float | None
    forward_ns: float | None
    backward_ns: float | None
    recompute_ns: float | None
    communication_ns: float | None
    num_calls: float | None
    flops: float | None
    allocated_bytes: float | None
    saved_bytes: float | None


@dataclass(frozen=True, kw_only=True)
class ModuleCallSums:
    """Sums over the calls of one name within a module, without those in modules inside it. Times are nanoseconds.

    ``modules`` are rows of the modules, ``kinds`` and ``names`` indices of ``texts``; a kind is ``operator`` or that of
    a kernel.
    """

    texts: list[str]
    modules: Column
    kinds: Column
    names: Column
    num_calls: Column
    total_ns: Column
    self_ns: Column
    max_ns: Column
    device_ns: Column


@dataclass(frozen=True, kw_only=True)
class Modules:
    """The tree of torch modules: ``rows`` in order, each before those inside it, and the ``calls`` within each.

    ``side`` is ``CPU`` or ``GPU``: times are of the side that limits the step, which takes ``step_ns``. ``total`` is
    the sum of the outermost rows. Calls are of the ranks that the timeline shows.
    """

    side: str
    step_ns: float | None
    rows: list[Module]
    total: Module
    calls: ModuleCallSums


@dataclass(frozen=True, kw_only=True)
class PageData:
    """Data of the report page. None and empty fields are unknown or were not requested.

    Times are nanoseconds after ``origin_ns``, which is unix nanoseconds as a string, since a number of JavaScript has
    too few digits; this includes times in ``report``, which otherwise is the result of `RunReport.to_dict`.
    ``profiler_ns_per_step`` is the profiler's overhead within a step, ``profiler_ns_around`` around the steps of a
    window. ``explanations`` has HTML by kind of finding, from Kinetoscope's package only, without links.
    ``part_labels`` are the labels of the parts of a step; ``breakdowns`` are of the run and of each rank, ``devices``
    of all together and each. Without recorded calls of modules there are no ``modules``.
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
    compared_sides: list[ComparedSide] = field(default_factory=list)
    report: Annotated[dict[str, Any], "RunReport"] | None = None
    comparison: Annotated[dict[str, Any], "Comparison"] | None = None
    timeline: Timeline | None = None
    memory: list[MemoryOverTime] = field(default_factory=list)
    flame_graphs: list[FlameGraph] = field(default_factory=list)
    calling_lines: list[CallingLine] = field(default_factory=list)
    modules: Modules | UnsetType = UNSET
