"""Thresholds of the reading of traces: short traces of a loop on the CPU."""

import json
import tempfile
from itertools import count
from pathlib import Path

import kinetoscope
from support.synthetic_evidence.thresholds import threshold

LOOP, SAMPLES = 1, 2
NUM_STEPS = 10
GAP_US = 50


class Drawing:
    """A trace, written span by span. Times are microseconds."""

    def __init__(self):
        self.events, self.now, self._addresses, self._allocated = [], 0, count(4096, 4096), 0

    def span(self, name, dur, *, category="cpu_op", at=None, tid=LOOP):
        begin = self.now if at is None else at
        self.events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": begin, "dur": dur})
        self.now = begin + dur if at is None else self.now

    def step(self, number, draw):
        """Draw a step of spans that ``draw`` makes, one after the other."""
        begin = self.now
        draw()
        self.span(f"ProfilerStep#{number}", self.now - begin, category="user_annotation", at=begin)

    def counter(self, name, **values):
        self.events.append({"ph": "C", "name": name, "pid": 1, "tid": LOOP, "ts": self.now, "args": values})

    def sample(self, line, state, at, interval=10_000):
        for name, category in ((f"{line}: run", "stack_sample"), (f"waits: {state}", "stack_sample,state")):
            if state or category == "stack_sample":
                self.span(name, interval - 10, category=category, at=at, tid=SAMPLES)

    def allocate(self, num_bytes, address=None):
        """Allocate memory, or free that of an address; return the address."""
        address = next(self._addresses) if address is None else address
        self._allocated += num_bytes
        args = {"Device Type": 0, "Device Id": -1, "Total Allocated": self._allocated, "Bytes": num_bytes}
        event = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": LOOP}
        self.events.append(event | {"ts": self.now + 0.5, "args": args | {"Total Reserved": 0, "Addr": address}})
        return address

    def report(self, *, is_sampled=False):
        if is_sampled:
            instant = {"ph": "i", "s": "t", "cat": "stack_sample,state", "name": "sampled every 10 ms", "ts": 0}
            self.events.append(instant | {"pid": 1, "tid": SAMPLES})
            names = {LOOP: "MainThread", SAMPLES: "samples of MainThread"}
            about = {"ph": "M", "name": "thread_name", "pid": 1}
            self.events += [about | {"tid": tid, "args": {"name": name}} for tid, name in names.items()]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rank0.json"
            path.write_text(json.dumps({"baseTimeNanoseconds": 10**18, "traceEvents": self.events}), encoding="utf-8")
            return kinetoscope.analyze(path, cache=False)

    def find(self, kind, **sampling):
        return next((finding for finding in self.report(**sampling).findings if finding.kind == kind), None)


def drawn_steps(draw, num_steps=NUM_STEPS):
    """Return a trace whose steps ``draw`` makes of the trace and the number of the step."""
    drawing = Drawing()
    for number in range(num_steps):
        drawing.step(number, lambda number=number: draw(drawing, number))
    return drawing


# -- Python between operators


@threshold("cpu.python_time.ORDINARY_PYTHON_NS", 100_000)
def counts_no_more_of_python(time_ns):
    """Six pauses of 0.15 ms in a step count for 0.05 ms each."""

    def draw(drawing, _):
        for number in range(6):
            drawing.now += 150
            drawing.span(f"aten::op{number}", 100)

    found = drawn_steps(draw).find("python_overhead")
    return found is not None and dict(found.evidence)["python_ns"] >= 6 * (150_000 - time_ns)


@threshold("cpu.python_time._MIN_REPEATS_IN_STEP", between=(30, 34))
def is_a_loop_in_python(num_pauses):
    def draw(drawing, _):
        for _ in range(num_pauses):
            drawing.now += GAP_US
            drawing.span("aten::mm", 50)

    return drawn_steps(draw).find("python_overhead") is not None


@threshold("cpu.python_time._MIN_CONSECUTIVE_SMALL", between=(31, 32))
def names_the_line_of_operators(num_in_a_row):
    def draw(drawing, _):
        for _ in range(4):
            drawing.now += 120
            begin = drawing.now
            for _ in range(num_in_a_row):
                drawing.span("aten::add", 5)
            drawing.span("train.py(5): step", drawing.now - begin, category="python_function", at=begin)

    return drawn_steps(draw).find("small_kernels").where.lines == ("train.py:5",)


# -- the loop's thread, and the machine


def clocked(drawing, length, **shares):
    """Read the clocks of the loop's thread, of the last ``length``."""
    rest = 1 - sum(shares.values())
    drawing.counter(
        "loop thread",
        **{f"{name}_ns": share * length * 1000 for name, share in shares.items()},
        running_ns=rest * length * 1000,
    )


@threshold("cpu.thread_states._CLOCK_ERROR_SHARE", 0.02)
def is_no_error_of_clocks(share):
    def draw(drawing, _):
        drawing.span("aten::mm", 99_000)
        drawing.now += 1000
        clocked(drawing, 100_000, starved=share, blocked=0)

    return drawn_steps(draw).report().steps[5].starved_ns > 0


@threshold("cpu.thread_states._MIN_UNSAMPLED_WAIT_NS", 1_000_000)
def is_a_wait(time_ns):
    pause = time_ns / 1000

    def draw(drawing, _):
        for _ in range(20):
            drawing.now += pause
            drawing.span("aten::mm", 1000)
        clocked(drawing, 20 * (pause + 1000), blocked=pause / (pause + 1000), starved=0)

    return drawn_steps(draw).find("blocked") is not None


@threshold("cpu.thread_states._MAX_CLOCK_DIFFERENCE_SHARE", 0.1)
def counts_by_the_clocks(apart):
    """Samples show that a loop waits for 40 ms of 100 ms, in half of a pause; the clocks that it waits for longer."""

    def draw(drawing, _):
        begin = drawing.now
        drawing.span("aten::mm", 20_000)
        drawing.now += 80_000
        for number in range(10):
            drawing.sample("train.py(5)", "sleep" if number >= 6 else "", begin + 10_000 * number)
        clocked(drawing, 100_000, blocked=0.4 + apart, starved=0)

    found = drawn_steps(draw).find("blocked", is_sampled=True)
    return dict(found.evidence)["blocked_ns"] > 42_000_000


@threshold("findings.evidence.window._MIN_READINGS", between=(2, 3))
def has_enough_readings(num_readings):
    def draw(drawing, number):
        drawing.now += 50_000
        drawing.span("aten::mm", 20_000)
        if number < num_readings:
            drawing.counter("process", percent=10)

    return drawn_steps(draw).find("python_overhead").title.startswith("Idle process")


# -- memory


def grows(draw, num_steps=9):
    (row,) = drawn_steps(draw, num_steps).report().memory
    return bool(row.growth_bytes_per_step)


@threshold("memory.memory_growth._MIN_RISES", between=(2, 3))
def rises_often(num_rises):
    rises = {2: {3: 2, 6: 1}, 3: {2: 2, 5: 1, 8: 2}}[num_rises]

    def draw(drawing, number):
        if number in rises:
            drawing.allocate(10**6 * rises[number])
        drawing.span("aten::add", 100)

    return grows(draw)


@threshold("memory.memory_growth._MIN_GROWTH_PER_FREED", 3)
def grows_by_more_than_comes_and_goes(times):
    """Each of 9 steps keeps 1 MB, and one of them more, until the next one."""
    freed, returned = [], round(10**6 + 8 * 10**6 / times)

    def draw(drawing, number):
        drawing.allocate(10**6)
        while freed:
            drawing.allocate(-returned, freed.pop())
        if number == 4:
            freed.append(drawing.allocate(returned))
        drawing.span("aten::add", 100)

    return grows(draw)
