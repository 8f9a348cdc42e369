"""Speed of turning records into Chrome JSON in memory-backed files, and slowdown of a loop on another thread."""

import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from benchmarks.interleaved import Candidate, Loop, Timings, measure
from benchmarks.recording.profilers import recorder_name, recording
from benchmarks.suite import Measure, SuiteResult
from kinetoscope import ProfilerAction
from kinetoscope.core.clock.clock import Anchor
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.formats.chrome import ChromeWriter
from kinetoscope.handlers.cycle_events import Drain, thread_events
from kinetoscope.recording.markers.recorder_types import SpanName, WindowRecords
from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.spool.record import Flag, Kind, Record, ThreadRecords, pack_records

_NUM_RECORDS = 1_000_000
_PEER_DIVISOR = 10  # the other ways get a tenth of the records, since their events take a hundred times the memory
_SPANS_PER_BATCH = 20

_DRAIN, _PYTHON = "drain to JSON, to tmpfs", "events in Python, ChromeWriter"
_JSON, _MSGSPEC = "json.dumps of ready-made events", "msgspec of ready-made events"
_ALONE, _BESIDE = "marker loop", "marker loop beside a drain"
_BESIDE_HASHING, _BESIDE_PYTHON = "marker loop beside hashing without the GIL", "marker loop beside events in Python"

_HASHED_BYTES = bytes(20 << 20)
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


def run(*, quick: bool) -> SuiteResult:
    """Measure how fast records become a file, and how a busy loop slows meanwhile."""
    with tempfile.TemporaryDirectory(dir=_find_memory_folder(), prefix="drain-") as folder:
        file = Path(folder, "trace.json")
        speed = _measure_speed(file, _NUM_RECORDS // 10 if quick else _NUM_RECORDS, rounds=2 if quick else 7)
        effect = _measure_effect(file, rounds=4 if quick else 60)
    return SuiteResult(
        suite="drain",
        title="records to Chrome JSON",
        measures=[*_speed_measures(speed), *_effect_measures(effect)],
        recorder=recorder_name(),
        notes=[
            f"Files in {_find_memory_folder() or 'the temporary folder, which may be a disk'}.",
            "Both threads have a processor each. The loop's time leaves out waits for it, not for the GIL.",
        ],
        times_ns=speed.summary() | effect.summary(),
    )


def _find_memory_folder() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _measure_speed(file: Path, num_records: int, rounds: int) -> Timings:
    """Measure the nanoseconds per event."""
    whole, part = _make_cycle(num_records), _make_cycle(num_records // _PEER_DIVISOR)
    events = list(thread_events(part, part.threads[0]))
    works: dict[str, tuple[Callable[[BinaryIO], object], int]] = {
        _DRAIN: (partial(_drain, whole), num_records),
        _PYTHON: (partial(_write_events, part), len(events)),
        _JSON: (partial(_dump, events, lambda event: json.dumps(event).encode()), len(events)),
        _MSGSPEC: (partial(_dump, events, msgspec.json.Encoder().encode), len(events)),
    }
    candidates = [Candidate(name, partial(_open_writing_loop, file, work)) for name, (work, _) in works.items()]
    timings = measure(candidates, rounds=rounds, round_ms=1)
    return Timings({name: [time_ns / works[name][1] for time_ns in times] for name, times in timings.rounds_ns.items()})


def _speed_measures(timings: Timings) -> list[Measure]:
    measures = [
        Measure(name, 1e3 / timings.median_ns(name), "M events/s", f"best {1e3 / timings.best_ns(name):.3g}")
        for name in (_DRAIN, _PYTHON, _JSON, _MSGSPEC)
    ]
    ratios = [
        Measure(f"{peer} / drain", timings.median_ns(peer) / timings.median_ns(_DRAIN), "x")
        for peer in (_PYTHON, _JSON, _MSGSPEC)
    ]
    return [*measures, *ratios]


def _measure_effect(file: Path, rounds: int) -> Timings:
    """Measure the nanoseconds per pass of a busy loop with a marker, alone and while another thread writes."""
    drain, python = _make_cycle(_NUM_RECORDS), _make_cycle(_NUM_RECORDS // _PEER_DIVISOR)
    besides: dict[str, Callable[[threading.Event], object]] = {
        _ALONE: lambda stop: stop.wait(),
        _BESIDE: lambda stop: _write_to(file, partial(_drain, drain)),
        _BESIDE_HASHING: lambda stop: hashlib.sha256(_HASHED_BYTES),
        _BESIDE_PYTHON: lambda stop: _write_to(file, partial(_write_events, python)),
    }
    candidates = [Candidate(name, partial(_marker_loop, beside), over=_ALONE) for name, beside in besides.items()]
    return measure(candidates, rounds=rounds, round_ms=50)


def _effect_measures(timings: Timings) -> list[Measure]:
    return [
        Measure(f"{name}, slower by", timings.slow_down(name, _ALONE) * 100, "%", f"{timings.median_ns(name):.0f} ns")
        for name in (_BESIDE, _BESIDE_HASHING, _BESIDE_PYTHON)
    ]


@contextmanager
def _marker_loop(beside: Callable[[threading.Event], object]) -> Iterator[Loop]:
    """Yield a busy loop with a marker, while another thread repeats ``beside``."""
    cpus = sorted(os.sched_getaffinity(0))
    with recording(ProfilerAction.ACTIVE) as profiler, _repeat_on_thread(beside, cpus[1:]), _pinned_to(cpus[:1]):
        span, numbers = profiler.marker("busy"), tuple(range(400))

        def loop(count: int) -> int:
            begin = _read_running_ns()
            for _ in range(count):
                with span:
                    sum(numbers)
            return _read_running_ns() - begin

        for _ in profiler.batches(range(1)):
            yield loop


@contextmanager
def _pinned_to(cpus: list[int]) -> Iterator[None]:
    """Pin the calling thread to these CPUs, so that it shares them with no other thread of the benchmark.

    Nothing happens for an empty list.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _read_running_ns() -> int:
    """Return a clock that stops while this thread waits for a busy processor, but not while it waits for the GIL."""
    now = time.perf_counter_ns()
    return now - int(_SCHEDSTAT.read_text().split()[1]) if _SCHEDSTAT.exists() else now


@contextmanager
def _repeat_on_thread(work: Callable[[threading.Event], object], cpus: list[int]) -> Iterator[None]:
    """Repeat ``work`` on a thread that runs on these processors."""
    begun, stop = threading.Event(), threading.Event()

    def repeat() -> None:
        with _pinned_to(cpus):
            while not stop.is_set():
                begun.set()
                work(stop)

    thread = threading.Thread(target=repeat, name="drain benchmark")
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def _open_writing_loop(file: Path, work: Callable[[BinaryIO], object]) -> Iterator[Loop]:
    def loop(count: int) -> int:
        begin = time.perf_counter_ns()
        for _ in range(count):
            _write_to(file, work)
        return time.perf_counter_ns() - begin

    yield loop


def _write_to(file: Path, work: Callable[[BinaryIO], object]) -> None:
    with file.open("wb") as stream:
        work(stream)


def _drain(cycle: Cycle, stream: BinaryIO) -> None:
    drain = Drain(cycle)
    if not drain.plan(cycle.threads[0]):
        raise RuntimeError("Nothing can be drained: the native recorder was not built.")
    with ChromeWriter(stream, base_ns=cycle.begin.unix_ns, header={}) as writer:
        drain.write(writer)


def _write_events(cycle: Cycle, stream: BinaryIO) -> None:
    with ChromeWriter(stream, base_ns=cycle.begin.unix_ns, header={}) as writer:
        writer.write(thread_events(cycle, cycle.threads[0]))


def _dump(events: list[Any], encode: Callable[[Any], bytes], stream: BinaryIO) -> None:
    for event in events:
        stream.write(encode(event))
        stream.write(b",\n")


def _make_cycle(num_records: int) -> Cycle:
    """Return a long window of one thread: batches of twenty spans, some inside others."""
    begin, end = Anchor(10**13, 1_700_000_000 * 10**9), Anchor(10**13 + 10**12, 1_700_001_000 * 10**9 + 20_000)
    packed = pack_records(_make_record(begin.monotonic_ns, number) for number in range(num_records))
    threads = [ThreadRecords.of(os.getpid(), "MainThread", True, packed)]
    return Cycle(
        number=0,
        run_name="drain",
        ranks=Ranks(),
        attempt=Attempt("drain", 0, os.getpid()),
        pid=os.getpid(),
        begin_timestamp=Timestamp(),
        timestamp=Timestamp(),
        begin=begin,
        end=end,
        names=[SpanName(f"training/part {part}") for part in range(_SPANS_PER_BATCH)],
        recorded=WindowRecords(lambda: threads),
    )


def _make_record(start_ns: int, number: int) -> Record:
    """Return one record; every fourth span contains the three before it."""
    place, begin = number % 4, start_ns + number * 50_000
    begin, end = (begin - 160_000, begin + 1_000) if place == 3 else (begin, begin + 31_234)
    name, batch = number % _SPANS_PER_BATCH, number // _SPANS_PER_BATCH
    return Record(begin, end, name, batch, int(place != 3), Kind.SPAN, Flag.NONE)
