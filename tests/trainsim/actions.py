"""Actions of the threads of a training script, done one after the other: the parts of a program."""

from typing import NamedTuple

from trainsim.engine import RETURN_LAG_NS, Host, Kernel, Memory, QueuedSpan, Window


class Work(NamedTuple):
    """The thread is busy: with Python, or with whatever span is open."""

    duration_ns: int

    def run(self, host: Host) -> None:
        host.now_ns += self.duration_ns


class Open(NamedTuple):
    """A span begins. ``phase`` is the part of a step it belongs to."""

    name: str
    category: str = "cpu_op"
    args: str = ""
    phase: str | None = None

    def run(self, host: Host) -> None:
        host.open(self.name, self.category, self.args, self.phase)


class Close(NamedTuple):
    """The innermost span ends."""

    def run(self, host: Host) -> None:
        host.close()


class OpenStep(NamedTuple):
    """The span that is the step begins."""

    name: str
    category: str
    number: int
    args: str = ""

    def run(self, host: Host) -> None:
        if host.window is not None:
            host.step = self.number
        span = host.open(self.name, self.category, self.args)
        if host.window is not None:
            host.window.steps.append(span)


class CloseStep(NamedTuple):
    """The span that is the step ends."""

    def run(self, host: Host) -> None:
        host.close()
        host.step = None


class OnThread(NamedTuple):
    """Another thread continues; the loop's thread waits meanwhile."""

    thread: str

    def run(self, host: Host) -> None:
        if self.thread == "loop":
            host.waited("backward", host.handed_over_ns)
        else:
            host.handed_over_ns = host.now_ns
        host.thread = self.thread


class Launch(NamedTuple):
    """A call that puts work on a stream and returns without waiting for it, if the device takes more launches. A
    graph's has many kernels."""

    name: str
    stream: str
    kernels: tuple[Kernel, ...]
    duration_ns: int
    latency_ns: int

    def run(self, host: Host) -> QueuedSpan | None:
        room = host.room_after()
        if room is not None and room.end_ns is None:
            return room
        span = host.open(self.name, "cuda_runtime")
        blocked_ns = max(0, room.end_ns - host.now_ns) if room is not None and room.end_ns is not None else 0
        queued = [host.put(kernel, self.stream, span, self.latency_ns + blocked_ns) for kernel in self.kernels]
        host.launched.append(queued[-1])
        host.now_ns += self.duration_ns + blocked_ns
        host.close()
        return None


class BlockingCopy(NamedTuple):
    """A copy from or to pageable memory: the call returns after the copy has ended."""

    stream: str
    kernel: Kernel
    duration_ns: int
    latency_ns: int

    def run(self, host: Host) -> QueuedSpan | None:
        if (copy := host.unfinished) is None:
            span = host.open("cudaMemcpyAsync", "cuda_runtime")
            span.has_blocked = True
            copy = host.put(self.kernel, self.stream, span, self.latency_ns)
        if copy.end_ns is None:
            host.unfinished = copy
            return copy
        host.unfinished = None
        host.now_ns = max(host.now_ns + self.duration_ns, copy.end_ns + RETURN_LAG_NS)
        host.close()
        return None


class RecordEvent(NamedTuple):
    """An event that stands for all that is on a stream so far."""

    event: str
    stream: str
    duration_ns: int

    def run(self, host: Host) -> None:
        host.events[self.event] = host.stream(self.stream).tail()
        host.open("cudaEventRecord", "cuda_runtime")
        host.now_ns += self.duration_ns
        host.close()


class WaitForEvent(NamedTuple):
    """Later work of a stream waits for an event."""

    event: str
    stream: str
    duration_ns: int

    def run(self, host: Host) -> None:
        host.stream(self.stream).wait_for(host.events[self.event])
        host.open("cudaStreamWaitEvent", "cuda_runtime")
        host.now_ns += self.duration_ns
        host.close()


class Synchronize(NamedTuple):
    """The thread waits for a stream, an event, or with neither for the whole device."""

    name: str
    duration_ns: int
    stream: str | None = None
    event: str | None = None
    waits: bool = True

    def run(self, host: Host) -> QueuedSpan | None:
        targets = self._targets(host) if self.waits else []
        for target in targets:
            if target.end_ns is None:
                return target
        host.open(self.name, "cuda_runtime").has_blocked = True
        ends_ns = [target.end_ns + RETURN_LAG_NS for target in targets]  # type: ignore[operator]
        host.now_ns = max([host.now_ns + self.duration_ns, *ends_ns])
        host.close()
        return None

    def _targets(self, host: Host) -> list[QueuedSpan]:
        if self.stream is not None:
            return host.stream(self.stream).tail()
        return host.events.get(self.event, []) if self.event is not None else host.tails()


class Submit(NamedTuple):
    """A task is handed to a thread of its own, such as gloo's."""

    thread: str
    kernel: Kernel
    latency_ns: int

    def run(self, host: Host) -> None:
        launch = host.innermost()
        assert launch is not None
        host.put(self.kernel, self.thread, launch, host.now_ns - launch.begin_ns + self.latency_ns)


class AwaitTasks(NamedTuple):
    """The loop's thread waits until a thread has done all its tasks."""

    thread: str

    def run(self, host: Host) -> QueuedSpan | None:
        targets = host.stream(self.thread).tail()
        for target in targets:
            if target.end_ns is None:
                return target
        begin_ns = host.now_ns
        host.now_ns = max([begin_ns, *(target.end_ns for target in targets)])  # type: ignore[type-var]
        host.waited("communication", begin_ns)
        return None


class Fetch(NamedTuple):
    """The loop takes its next batch, and waits until it is there; if it does not wait, that takes no time at all."""

    name: str
    batch: int
    duration_ns: int
    waits: bool = True

    def run(self, host: Host) -> None:
        there_ns = host.loader.fetch(self.batch, host.now_ns)
        host.open(self.name, "user_annotation", phase="data")
        if self.waits:
            host.now_ns = max(host.now_ns + self.duration_ns, there_ns)
        host.close()
        host.loader.returned(host.now_ns)


class Allocate(NamedTuple):
    """Memory is taken, under a name by which it is given back."""

    name: str
    num_bytes: int

    def run(self, host: Host) -> None:
        address, _ = host.allocated.get(self.name, (0x7F00_0000_0000 + 512 * len(host.allocated), 0))
        host.allocated[self.name] = (address, self.num_bytes)
        _record_memory(host, self.num_bytes, address)


class Release(NamedTuple):
    """Memory is given back."""

    name: str

    def run(self, host: Host) -> None:
        address, num_bytes = host.allocated[self.name]
        _record_memory(host, -num_bytes, address)


class StartRecording(NamedTuple):
    """The profiler starts."""

    def run(self, host: Host) -> None:
        host.window = Window(host.now_ns)
        host.windows.append(host.window)


class StopRecording(NamedTuple):
    """The profiler stops."""

    def run(self, host: Host) -> None:
        assert host.window is not None
        host.window.end_ns = host.now_ns
        host.window = None


def _record_memory(host: Host, num_bytes: int, address: int) -> None:
    host.allocated_bytes += num_bytes
    if host.window is not None:
        event = Memory(host.now_ns, host.thread, num_bytes, address, host.allocated_bytes, host.step, host.innermost())
        host.window.memory.append(event)
