"""Discrete-event simulation: it runs the programs of all ranks until it has the start and end of everything.

A rank is one program, a list of actions that its Python does one after the other. An action's work waits in the queue
of its stream. A stream, or a program, that needs an unknown time is suspended, and continues when the time is known.
Nothing here is random: every duration comes with the program.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

EVENT_LAG_NS = 1_200
"""Time from the end of a stream's wait to the start of its next span."""

USUAL_GAP_NS = 1_000
"""From the end of a kernel to the start of the next one of its stream."""

RETURN_LAG_NS = 2_000
"""From the end of what a host thread waits for to the return of its call."""


@dataclass(slots=True, eq=False)
class HostSpan:
    """A span on a thread: an operator, a call of the CUDA runtime, an annotation or a Python function."""

    name: str
    category: str
    thread: str
    begin_ns: int
    parent: "HostSpan | None"
    step: int | None
    window: int | None
    """The index of the window that recorded it, not the window, which has this span: no cycle of references."""
    args: str = ""
    phase: str | None = None
    external_id: int = 0
    correlation: int | None = None
    end_ns: int = -1
    has_blocked: bool = False


class Kernel(NamedTuple):
    """Span that a launch puts on a stream. With a ``call`` it is a rank's part in a collective and ends with the
    others'.

    ``gap_ns`` is the time from the end of the previous span of the stream to the start of this one, at least. A kernel
    that may overlap with the previous one has a negative gap; it still starts and ends after the previous one does.
    """

    name: str
    category: str
    kind: str
    duration_ns: int
    gap_ns: int = USUAL_GAP_NS
    args: str = ""
    call: "CallKey | None" = None
    jitter_ns: int = 0
    flops: int | None = None
    num_bytes: int | None = None
    least_bytes: int | None = None
    module: str = ""
    """The module that a kernel belongs to, and its direction, as in ``Model.layers.0 forward``."""


@dataclass(slots=True, eq=False)
class QueuedSpan:
    """A kernel or copy on its stream, or a collective on gloo's thread."""

    kernel: Kernel
    stream: "Stream"
    launch: HostSpan
    earliest_ns: int
    after: "list[QueuedSpan]"
    begin_ns: int = -1
    end_ns: int | None = None
    waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def step(self) -> int | None:
        """The step its launch began in; None if that was not recorded."""
        return self.launch.step if self.launch.window is not None else None


class CallKey(NamedTuple):
    """Which collective call of a run: the ``sequence``-th of its ``group``."""

    group: str
    sequence: int
    name: str
    num_bytes: int
    ranks: tuple[int, ...]


CLOSURE = "closure"
"""The category of spans that only the simulator knows: where an optimizer calls a closure."""


class Memory(NamedTuple):
    """An allocation, or with negative bytes a release."""

    at_ns: int
    thread: str
    num_bytes: int
    address: int
    total_bytes: int
    step: int | None
    operator: HostSpan | None


class Wait(NamedTuple):
    """An interval in which the loop's thread waits without a span that says so."""

    kind: str
    begin_ns: int
    end_ns: int


@dataclass(slots=True, eq=False)
class Window:
    """Recording of one rank from one start of the profiler to its stop."""

    begin_ns: int
    end_ns: int = -1
    spans: list[HostSpan] = field(default_factory=list)
    steps: list[HostSpan] = field(default_factory=list)
    queued: list[QueuedSpan] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    making: list["Making"] = field(default_factory=list)


class Stream:
    """A queue whose spans run one after the other."""

    def __init__(self, engine: "Engine", track: str) -> None:
        self.track = track
        self._engine = engine
        self._queue: deque[QueuedSpan] = deque()
        self._free_ns = 0
        self._last_begin_ns = -1
        self._last: list[QueuedSpan] = []
        self._after: list[QueuedSpan] = []

    def put(self, kernel: Kernel, launch: HostSpan, earliest_ns: int) -> QueuedSpan:
        """Add a span, which begins when all before it and all that it waits for have ended."""
        span = QueuedSpan(kernel, self, launch, earliest_ns, self._after)
        self._after, self._last = [], [span]
        self._queue.append(span)
        if len(self._queue) == 1:
            self.advance()
        return span

    def wait_for(self, others: Iterable[QueuedSpan]) -> None:
        """Let whatever comes next wait for spans of other streams."""
        self._after.extend(others)

    def tail(self) -> list[QueuedSpan]:
        """Return the end of all that was put here."""
        return self._last + self._after

    def drop_tail(self) -> None:
        """Drop the references to spans, which reference their stream, so that a run needs no garbage collection."""
        self._last, self._after = [], []

    def advance(self) -> None:
        """Run the queue as far as the moments that it depends on are known."""
        while self._queue:
            span = self._queue[0]
            if span.begin_ns < 0 and not self._begin(span):
                return
            if span.end_ns is None:  # other ranks have not come to this collective yet
                return
            self._queue.popleft()
            self._free_ns, self._last_begin_ns = span.end_ns, span.begin_ns

    def _begin(self, span: QueuedSpan) -> bool:
        for other in span.after:
            if other.end_ns is None:
                other.waiting.append(self.advance)
                return False
        kernel = span.kernel
        begin_ns = max(span.earliest_ns, self._free_ns + kernel.gap_ns, self._last_begin_ns + 1)
        for other in span.after:
            begin_ns = max(begin_ns, other.end_ns + EVENT_LAG_NS)  # type: ignore[operator]
        span.begin_ns = begin_ns
        if kernel.call is None:
            self._engine.end(span, max(begin_ns + kernel.duration_ns, self._free_ns))
        else:
            self._engine.join(kernel.call, span)
        return True


class Making(NamedTuple):
    """When a worker makes a batch."""

    worker: int
    begin_ns: int
    end_ns: int


class Loader:
    """Workers that make batches ahead of the loop, and a thread that pins them. Without workers the loop makes them."""

    def __init__(self, *, num_workers: int, num_ahead: int, make_ns: Sequence[int], pin_ns: int) -> None:
        self._num_workers, self._num_ahead = num_workers, num_ahead
        self._make_ns, self._pin_ns = make_ns, pin_ns
        self._made_ns: list[int] = []
        self._pinned_ns: list[int] = []
        self._returned_ns: list[int] = []
        self._making: list[Making] = []

    def fetch(self, batch: int, now_ns: int) -> int:
        """When the batch that is requested now is there."""
        if not self._num_workers:
            return now_ns + self._make_ns[batch]
        self._make(batch, self._make_ns[batch])
        pinned_ns = self._pinned_ns[-1] if self._pinned_ns else 0
        self._pinned_ns.append(max(self._made_ns[-1], pinned_ns) + self._pin_ns)
        return self._pinned_ns[-1]

    def making(self) -> list[Making]:
        """When workers make the batches that the loop has got, and those that they make ahead of it."""
        ahead = copy(self)
        ahead._made_ns, ahead._making = [*self._made_ns], [*self._making]
        for batch in range(len(self._made_ns), len(self._made_ns) + self._num_workers * self._num_ahead):
            ahead._make(batch, self._make_ns[-1])
        return ahead._making

    def _make(self, batch: int, takes_ns: int) -> None:
        requested = batch - self._num_workers * self._num_ahead
        requested_ns = self._returned_ns[requested] if requested >= 0 else 0
        idle_ns = self._made_ns[batch - self._num_workers] if batch >= self._num_workers else 0
        begin_ns = max(requested_ns, idle_ns)
        self._made_ns.append(begin_ns + takes_ns)
        self._making.append(Making(batch % self._num_workers, begin_ns, begin_ns + takes_ns))

    def returned(self, now_ns: int) -> None:
        """A batch was handed to the loop: a worker may begin one more."""
        self._returned_ns.append(now_ns)


class Action(Protocol):
    """Something that a program does. It returns what it waits for, and is then run again, or None when it is done."""

    def run(self, host: "Host") -> QueuedSpan | None: ...


class Host:
    """One rank: its program, its threads, its streams, and what it records."""

    def __init__(
        self, engine: "Engine", rank: int, program: Sequence[Action], loader: Loader, max_launches: int = 0
    ) -> None:
        self.rank, self.loader, self._max_launches = rank, loader, max_launches
        self.launched: list[QueuedSpan] = []
        """The last thing of each launch."""
        self.now_ns = 0
        self.thread = "loop"
        self.step: int | None = None
        self.window: Window | None = None
        self.windows: list[Window] = []
        self.queued: list[QueuedSpan] = []
        self.events: dict[str, list[QueuedSpan]] = {}
        self.allocated: dict[str, tuple[int, int]] = {}
        self.allocated_bytes = 0
        self.unfinished: QueuedSpan | None = None
        self.handed_over_ns = 0
        self._engine, self._program, self._position = engine, program, 0
        self._streams: dict[str, Stream] = {}
        self._stacks: dict[str, list[HostSpan]] = {}
        self._num_calls = self._num_operators = 0

    def run(self) -> None:
        """Run the program as far as the moments that it depends on are known."""
        program, length = self._program, len(self._program)
        while self._position < length:
            needed = program[self._position].run(self)
            if needed is not None:
                needed.waiting.append(self.run)
                return
            self._position += 1

    @property
    def has_ended(self) -> bool:
        return self._position == len(self._program)

    def open(self, name: str, category: str, args: str = "", phase: str | None = None) -> HostSpan:
        """Begin a span on the thread that is running."""
        stack = self._stacks.setdefault(self.thread, [])
        parent = stack[-1] if stack else None
        window = len(self.windows) - 1 if self.window is not None else None
        span = HostSpan(name, category, self.thread, self.now_ns, parent, self.step, window, args, phase)
        if category in ("cpu_op", "user_annotation"):
            self._num_operators += 1
            span.external_id = self._num_operators
        elif parent is not None:
            span.external_id = parent.external_id
        if category == "cuda_runtime":
            self._num_calls += 1
            span.correlation = self._num_calls
        if self.window is not None:
            self.window.spans.append(span)
        stack.append(span)
        return span

    def close(self) -> None:
        """End the innermost open span of the thread that is running."""
        self._stacks[self.thread].pop().end_ns = self.now_ns

    def innermost(self) -> HostSpan | None:
        """Return the innermost open span of the thread that is running."""
        stack = self._stacks.get(self.thread)
        return stack[-1] if stack else None

    def stream(self, track: str) -> Stream:
        """Return a stream, or a thread that runs one task after the other; made at its first use."""
        if track not in self._streams:
            self._streams[track] = Stream(self._engine, track)
        return self._streams[track]

    def put(self, kernel: Kernel, track: str, launch: HostSpan, latency_ns: int) -> QueuedSpan:
        """Put a span on a stream."""
        span = self.stream(track).put(kernel, launch, launch.begin_ns + latency_ns)
        self.queued.append(span)
        return span

    def room_after(self) -> QueuedSpan | None:
        """Return the span that must end before the device accepts one more launch."""
        full = self._max_launches and len(self.launched) >= self._max_launches
        return self.launched[-self._max_launches] if full else None

    def tails(self) -> list[QueuedSpan]:
        """Return the spans that must end before the whole device is idle."""
        return [span for stream in self._streams.values() for span in stream.tail()]

    def drop_tails(self) -> None:
        """Drop what only a running program needs of its streams."""
        for stream in self._streams.values():
            stream.drop_tail()

    def waited(self, kind: str, begin_ns: int) -> None:
        """Record that the loop's thread has waited until now, without a span."""
        if self.window is not None:
            self.window.waits.append(Wait(kind, begin_ns, self.now_ns))


class Engine:
    """All ranks of a run, and the collectives that join them."""

    def __init__(self) -> None:
        self._ready: deque[Callable[[], None]] = deque()
        self._calls: dict[CallKey, list[QueuedSpan]] = {}

    def run(self, hosts: Sequence[Host]) -> None:
        """Run all programs to their ends. Raises RuntimeError if ranks wait for one another for ever."""
        self._ready.extend(host.run for host in hosts)
        while self._ready:
            self._ready.popleft()()
        stuck = [host.rank for host in hosts if not host.has_ended]
        if stuck or self._calls:
            raise RuntimeError(f"The simulated ranks {stuck} wait for ever; open collectives: {list(self._calls)[:3]}.")
        for host in hosts:
            host.drop_tails()

    def end(self, span: QueuedSpan, end_ns: int) -> None:
        """Set the end of a span: all that waits for it continues."""
        span.end_ns = end_ns
        if span.waiting:
            self._ready.extend(span.waiting)
            span.waiting = []

    def join(self, call: CallKey, span: QueuedSpan) -> None:
        """A rank begins its part of a collective, which takes its time from when the last rank has."""
        parts = self._calls.setdefault(call, [])
        parts.append(span)
        if len(parts) < len(call.ranks):
            return
        del self._calls[call]
        begin_ns = max(part.begin_ns for part in parts)
        transfer_ns = max(part.kernel.duration_ns for part in parts)
        for part in parts:
            self.end(part, begin_ns + transfer_ns + part.kernel.jitter_ns)
            if part is not span:
                self._ready.append(part.stream.advance)
