"""Steps that only need to be counted are counted in C: any loop gives the same results as with all steps reported."""

import copy
import pickle
import random

import pytest

from kinetoscope import Callback, JSONTraceHandler, Profiler, State, Timestamp, cyclic_schedule
from kinetoscope.core.job.event import skippable
from kinetoscope.pulse.pulses import find_pulses
from kinetoscope.testing import FakeClock, MemoryTraceHandler

MS = 1_000_000


class WantsAll(Callback):
    def batch_end(self, state, logger):
        pass


class WantsWindows(Callback):
    """A source that records the batches it gets."""

    def __init__(self):
        self.batches = []

    @skippable
    def batch_end(self, state, logger):
        self.batches.append(int(state.timestamp.batch))


class RandomLoop:
    """A loop that does what ``seed`` says; what can be seen of it is in ``seen``."""

    def __init__(self, folder, seed, *, is_reported):
        self.chance, self.clock, self.seen = random.Random(seed), FakeClock(tick_ns=0), []
        self.handler = MemoryTraceHandler()
        schedule = cyclic_schedule(
            skip_first=self.chance.randrange(12),
            wait=self.chance.randrange(12),
            active=self.chance.randrange(1, 3),
            repeat=self.chance.choice([0, 2]),
            per=self.chance.choice(["run", "epoch"]),
        )
        self.profiler = Profiler(
            schedule,
            [self.handler, JSONTraceHandler(str(folder / "traces"), merged_trace_filename=None)],
            sources=[WantsAll()] if is_reported else [WantsWindows()],
            clock=self.clock,
            quiet=True,
            strict=True,
        )
        self.loader = None

    def load(self):
        """Iterates over a DataLoader of torch's from now on, which ends now and then."""
        from torch.utils.data import DataLoader

        def collate(number):
            self.pass_time()
            if number % 3 == 0:  # a dataset that reads with a DataLoader of its own
                next(iter(DataLoader([number], batch_size=None)))
                self.pass_time()
            return number

        self.loader = iter(DataLoader(range(20), batch_size=None, collate_fn=collate))

    def fetch(self):
        if self.loader is not None and next(self.loader, None) is None:
            self.load()

    def fetched(self, count=10**9):
        for number in range(count):
            self.pass_time()
            yield number

    def pass_time(self):
        self.clock.advance(self.chance.choice([0, MS, 7 * MS, 300 * MS]))

    def look(self):
        state = self.profiler.state
        timestamp = state.timestamp
        self.seen.append((dict(timestamp), self.profiler.get_action(), copy.copy(state).timestamp == timestamp))

    def step(self):
        self.pass_time()
        self.profiler.step(samples=self.chance.randrange(5), tokens=self.chance.randrange(3))

    def evaluate(self):
        with self.profiler.eval():
            for _ in self.profiler.batches(self.fetched(2)):
                self.pass_time()

    def batches(self):
        leaves_at = self.chance.randrange(1, 30)
        for number in self.profiler.batches(self.fetched(self.chance.randrange(25))):
            self.pass_time()
            if self.chance.random() < 0.2:
                self.chance.choice([self.step, self.look, self.evaluate])()
            if number == leaves_at:
                break

    def epoch(self):
        with self.profiler.epoch(length=self.chance.choice([None, 20])):
            for _ in range(self.chance.randrange(1, 25)):
                self.step()

    def resume(self):
        self.profiler.resumption_batch_idx = int(self.profiler.state.timestamp.batch_in_epoch)

    def jump(self):
        state = self.profiler.state
        state.timestamp = state.timestamp.to_next_batch(samples=100)

    def run(self, *, loads):
        with self.profiler:
            if loads:
                self.load()
            for _ in range(60):
                does = (
                    [self.step, self.fetch] * 12
                    + [self.look] * 4
                    + [self.evaluate, self.batches, self.epoch, self.pass_time]
                )
                self.chance.choice([*does, self.resume, self.jump])()
            self.look()
        return self


@pytest.mark.parametrize("loads", [False, True], ids=["", "with a DataLoader"])
@pytest.mark.parametrize("seed", range(30))
def test_loop_gives_equal_records_with_counted_and_reported_steps(tmp_path, seed, loads):
    if loads:
        pytest.importorskip("torch")
    reported, counted = (
        RandomLoop(tmp_path / name, seed, is_reported=name == "reported").run(loads=loads)
        for name in ("reported", "counted")
    )
    assert counted.seen == reported.seen
    rows = [next(iter(find_pulses(tmp_path / name).values()))[0].rows for name in ("reported", "counted")]
    assert [(row.step, row.epoch, row.duration_ns, row.by_phase) for row in rows[1]] == [
        (row.step, row.epoch, row.duration_ns, row.by_phase) for row in rows[0]
    ]
    for name in ("event/batch", "event/epoch", "event/dataloader", "event/eval"):
        assert counted.handler.spans(name) == reported.handler.spans(name), name


def test_skipped_batches_are_reported_only_to_those_that_need_all(tmp_path):
    source = WantsWindows()
    schedule = cyclic_schedule(skip_first=50, warmup=1, active=2, per="run")
    handler = JSONTraceHandler(str(tmp_path / "traces"), merged_trace_filename=None)
    with Profiler(schedule, handler, sources=[source], quiet=True) as profiler:
        for _ in range(90):
            profiler.step()
        assert profiler.state.timestamp.batch == 90
    assert {50, 51, 52, 53} <= set(source.batches)
    assert len(source.batches) < 20


def test_a_timestamp_that_was_read_stays_what_it_was(tmp_path):
    with Profiler(cyclic_schedule(skip_first=50), JSONTraceHandler(str(tmp_path / "traces")), quiet=True) as profiler:
        profiler.step(samples=3)
        profiler.step(samples=3)
        read = profiler.state.timestamp
        state = copy.copy(profiler.state)
        profiler.step(samples=3)
        assert (read.batch, read.sample, state.timestamp.batch) == (2, 6, 2)
        assert (profiler.state.timestamp.batch, profiler.state.timestamp.sample) == (3, 9)
    assert profiler.state.timestamp.batch == 3


def test_counts_of_number_like_types_are_added(tmp_path):
    class Many(int):
        pass

    with Profiler(cyclic_schedule(skip_first=50), JSONTraceHandler(str(tmp_path / "traces")), quiet=True) as profiler:
        for samples in (1, Many(7), True, 2**70, 5):
            profiler.step(samples=samples)
        with pytest.raises(TypeError):
            profiler.step(samples="many")
    assert profiler.state.timestamp.sample == 14 + 2**70


def test_a_state_is_copied_compared_and_pickled_as_ever():
    state = State(run_name="x", timestamp=Timestamp(batch=3))
    assert pickle.loads(pickle.dumps(state)) == state == copy.deepcopy(state)
    assert repr(state).startswith("State(run_name='x', timestamp=Timestamp(batch=3)")
    with pytest.raises(AttributeError):
        state.colour = 1
