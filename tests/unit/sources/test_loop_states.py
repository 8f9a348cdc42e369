"""States of the loop's thread, at each sample and in each batch: running, waiting, or descheduled."""

import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from kinetoscope import ProfilerAction, StackSampler
from kinetoscope.formats.anonymizer import Anonymizer
from kinetoscope.formats.trace_names import LOOP_CLOCKS, PROCESSORS
from kinetoscope.formats.trace_redaction import KNOWN_CATEGORIES
from kinetoscope.recording.profiler import Profiler
from kinetoscope.testing import MemoryTraceHandler
from support.fork_server import run_program
from support.open_files import open_files_below

needs_states = pytest.mark.skipif(
    "KINETOSCOPE_PORTABLE" in os.environ or not os.path.exists(f"/proc/self/task/{threading.get_native_id()}/syscall"),
    reason="the system does not report states",
)
needs_delays = pytest.mark.skipif(
    not os.path.exists(f"/proc/self/task/{threading.get_native_id()}/schedstat"), reason="the system has no run_delay"
)


def always(state):
    return ProfilerAction.ACTIVE


def sampled(work, num_batches=3):
    """Return a sampler's records of ``work``, batch by batch."""
    handler = MemoryTraceHandler()
    with Profiler(always, handler, sources=[StackSampler(interval_ms=1)], strict=True) as profiler:
        for _ in profiler.batches(range(num_batches)):
            work()
    return handler


def waited_ns(handler):
    """Return the duration of each state."""
    total_ns = {}
    for name, begin, end in handler.spans():
        if name.startswith("waits: "):
            total_ns[name] = total_ns.get(name, 0) + end - begin
    return total_ns


def counted(handler):
    """Return the sums of the counter's values."""
    sums = {}
    for cycle in handler.cycles:
        for _, record, name in cycle.records():
            if name.name == LOOP_CLOCKS:
                series = cycle.names[record.series].name
                sums[series] = sums.get(series, 0) + record.end
    return sums


def wait_for_lock():
    lock = threading.Lock()
    lock.acquire()
    threading.Timer(0.05, lock.release).start()
    lock.acquire()


def wait_for_network():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(0.05)
        with pytest.raises(TimeoutError):
            listening.accept()


def wait_for_pipe():
    read, write = os.pipe()
    threading.Timer(0.05, lambda: os.write(write, b"x")).start()
    os.read(read, 1)
    os.close(read), os.close(write)


def wait_for_child():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(0.05)"], check=True)


@needs_states
@pytest.mark.parametrize(
    ("work", "state"),
    [
        (lambda: time.sleep(0.05), "waits: sleep"),
        (wait_for_lock, "waits: another thread"),
        (wait_for_network, "waits: network"),
        (wait_for_pipe, "waits: pipe"),
        (wait_for_child, "waits: child process"),
    ],
)
def test_a_sample_says_what_the_thread_waits_for(work, state):
    assert waited_ns(sampled(work)).get(state, 0) > 20_000_000  # on a busy machine it waits for its own threads too


@needs_states
def test_a_sample_in_fsync_says_so(tmp_path):
    file = os.open(tmp_path / "written", os.O_RDWR | os.O_CREAT)

    def write():
        for _ in range(50):
            os.pwrite(file, b"x" * 65536, 0)
            os.fsync(file)

    handler = sampled(write, num_batches=10)
    os.close(file)
    if not any(name.startswith("waits: ") for name, _, _ in handler.spans()):
        pytest.skip("this disk blocks no thread")
    waited = waited_ns(handler)
    assert max(waited, key=waited.get) == "waits: fsync"


@needs_states
def test_thread_that_waits_for_the_gil_shows_the_running_thread():
    def compute_beside(seconds=0.3):
        is_over = threading.Event()
        other = threading.Thread(target=lambda: [None for _ in iter(is_over.is_set, True)], name="tokenizer")
        other.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sum(range(1000))
        is_over.set()
        other.join()

    # The state is read at a sample: on a busy machine, a second may pass without one in which only the tokenizer runs.
    tries = ({name for name, _, _ in sampled(compute_beside).spans()} for _ in range(20))
    assert any("waits: GIL, tokenizer ran" in names for names in tries)


@needs_states
def test_a_thread_that_computes_waits_for_nothing():
    def compute():
        until = time.thread_time() + 0.1
        while time.thread_time() < until:
            sum(range(1000))

    spans = sampled(compute).spans()
    waited_ns = sum(end - begin for name, begin, end in spans if name.startswith("waits: "))
    assert waited_ns < 0.2 * max(end - begin for _, begin, end in spans)


def test_states_lie_within_the_line_that_was_executing():
    spans = sampled(lambda: time.sleep(0.05)).spans()
    lines = [(begin, end) for name, begin, end in spans if ".py(" in name]
    for name, begin, end in spans:
        if name.startswith("waits: "):
            assert any(first <= begin and end <= last for first, last in lines)


@needs_delays
def test_a_counter_says_how_long_the_thread_ran_and_was_blocked():
    begin_ns = time.thread_time_ns()
    sums = counted(sampled(lambda: time.sleep(0.05)))
    assert sums.keys() == {"running_ns", "starved_ns", "blocked_ns"}
    assert sums["blocked_ns"] > 130_000_000  # of 150 ms
    assert 0 < sums["running_ns"] <= time.thread_time_ns() - begin_ns


def test_without_run_delay_it_says_how_long_the_thread_waited(monkeypatch):
    monkeypatch.setattr("kinetoscope.sources.loop_clocks.SCHEDSTAT", "/nowhere/schedstat")
    sums = counted(sampled(lambda: time.sleep(0.05)))
    assert sums.keys() == {"running_ns", "waiting_ns"}
    assert sums["waiting_ns"] > 130_000_000


FORKED = """
import os, sys, time
from kinetoscope import ProfilerAction, StackSampler
from kinetoscope.recording.profiler import Profiler
from kinetoscope.testing import MemoryTraceHandler

pid = os.fork()
if pid:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
handler = MemoryTraceHandler()
sampler = StackSampler(interval_ms=1)
with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[sampler], strict=True) as profiler:
    for _ in profiler.batches(range(3)):
        time.sleep(0.05)
print("waits: sleep" in {name for name, _, _ in handler.spans()})
print("starved_ns" in {name.name for cycle in handler.cycles for name in cycle.names})
"""


@needs_states
@needs_delays
def test_the_main_thread_of_a_forked_process_has_states_and_delays_too():
    done = run_program(FORKED)
    assert done.stdout.splitlines() == ["True", "True"], done.stderr


@needs_delays
def test_every_batch_has_its_own_reading():
    handler = sampled(lambda: time.sleep(0.01), num_batches=3)
    readings = [record for cycle in handler.cycles for _, record, name in cycle.records() if name.name == LOOP_CLOCKS]
    assert sorted({record.batch for record in readings}) == [0, 1, 2]
    assert len(readings) == 3 * 3


def test_batches_that_end_on_another_thread_have_no_reading():
    handler = MemoryTraceHandler()
    with Profiler(always, handler, sources=[StackSampler(interval_ms=1)], strict=True) as profiler:
        batches = iter(profiler.batches(range(3)))
        next(batches)
        other = threading.Thread(target=lambda: list(batches))
        other.start()
        other.join()
    assert not counted(handler)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_reads_its_own_clocks():
    def fork_and_wait():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                sums = counted(sampled(lambda: time.sleep(0.05)))
                waited_ns = sums.get("blocked_ns", 0) + sums.get("waiting_ns", 0)
                code = 0 if waited_ns > 130_000_000 else 2
            finally:
                os._exit(code)
        exit_codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    exit_codes = []
    sampled(fork_and_wait)
    assert exit_codes == [0, 0, 0]


def test_window_has_the_cpu_use_of_job_and_others():
    def compute():
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            sum(range(1000))

    (cycle,) = sampled(compute).cycles
    (args,) = [event.args for event in cycle.events if event.name == PROCESSORS]
    assert args["own_ns"] >= 150_000_000
    if sys.platform == "linux":
        assert args["cores"] == len(os.sched_getaffinity(0))
        assert 0 < args["busy_ns"] <= args["cores"] * 1.5 * args["wall_ns"]


def test_a_child_that_computes_is_counted_with_its_parent():
    def compute_in_child():
        subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)

    (cycle,) = sampled(compute_in_child).cycles
    (args,) = [event.args for event in cycle.events if event.name == PROCESSORS]
    assert args["own_ns"] > 3 * 50_000_000


def test_nothing_stays_open_after_the_run():
    during = []
    sampled(lambda: time.sleep(0.01))
    before = open_files_below("/proc")
    sampled(lambda: during.append(open_files_below("/proc")))
    assert open_files_below("/proc") == before
    assert sys.platform != "linux" or len(during[0]) > len(before)


@pytest.mark.parametrize(
    ("category", "name", "redacted"),
    [
        ("stack_sample,state", "waits: GIL", "waits: GIL"),
        ("stack_sample,state", "waits: fsync", "waits: fsync"),
        ("stack_sample,state", "running; the line is a later one", "running; the line is a later one"),
        ("stack_sample,state", "waits: GIL, secret customer ran", "waits: GIL, name 1 ran"),
        ("system", "loop thread", "loop thread"),
        ("processors", "processors", "processors"),
    ],
)
def test_names_of_thread_states_are_shown_in_redacted_pages(category, name, redacted):
    assert Anonymizer().event({"ph": "X", "cat": category, "name": name}) == {
        "ph": "X",
        "cat": category,
        "name": redacted,
    }


def test_the_categories_are_kept_in_redacted_traces():
    assert {"stack_sample", "state", "processors", "system"} <= KNOWN_CATEGORIES
