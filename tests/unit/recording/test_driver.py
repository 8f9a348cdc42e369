"""recording/driver.py: a trainer that reports to a `Driver`, without access to anything else."""

import threading

import pytest

import kinetoscope
from kinetoscope import Callback, Profiler, Timestamp
from kinetoscope.testing import FakeClock, MemoryTraceHandler
from support.autoinstrumented_runs import frame_of

torch = pytest.importorskip("torch")
SCHEDULE = kinetoscope.cyclic_schedule(warmup=1, active=3, repeat=0, per="run")


class ToyTrainer:
    """A trainer of ten lines."""

    def __init__(self, step, driver):
        self.step, self.driver = step, driver

    def fit(self, batches, evaluate, num_epochs):
        for _ in range(num_epochs):
            self.driver.on_epoch(True, len(batches))
            for batch in batches:
                self.step(batch)
                self.driver.on_step(samples=len(batch))
            self.driver.on_evaluation(True)
            evaluate()
            self.driver.on_epoch(False)


def profiler_of(folder, **options):
    usual = {"torch": False, "system": False, "quiet": True, "schedule": SCHEDULE}
    return kinetoscope.profile(folder, **{**usual, **options})


@pytest.fixture
def loader():
    return torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2)


@pytest.fixture
def step():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step(batch):
        model(batch).sum().backward()
        optimizer.step()

    return step


def test_a_trainer_of_ten_lines_records_steps_epochs_and_evaluations(tmp_path, loader, step):
    driver = profiler_of(tmp_path).driver
    driver.start()
    ToyTrainer(step, driver).fit(loader, lambda: list(loader), num_epochs=2)
    driver.end()
    steps = frame_of(tmp_path)
    assert steps["step"].to_list() == list(range(16))
    assert steps["epoch"].to_list() == [0] * 8 + [1] * 8
    assert [number for number, time_ns in zip(steps["step"], steps["evaluation_ns"], strict=True) if time_ns] == [8]
    assert steps["data_wait_ns"].min() > 0
    assert steps["backward_ns"].min() > 0
    assert steps["optimizer_ns"].min() > 0
    assert kinetoscope.analyze(tmp_path).run["num_steps"] == 12  # four windows of three
    assert driver.folder == tmp_path


def test_waits_and_phases_that_no_hook_finds_can_be_reported(tmp_path):
    driver, batches = profiler_of(tmp_path).driver, iter(range(8))
    driver.start()
    for _ in range(8):
        driver.on_fetch(next, batches)
        for phase in ("forward", "backward", "optimizer", "checkpoint", "other"):
            driver.on_phase(phase)
        driver.on_step()
    with pytest.raises(StopIteration):
        driver.on_fetch(next, batches)
    driver.end()
    steps = frame_of(tmp_path)
    assert len(steps) == 8
    for phase in ("data_wait", "forward", "backward", "optimizer", "checkpoint"):
        assert steps[f"{phase}_ns"].min() > 0, phase
    assert "event/dataloader" in kinetoscope.load(tmp_path).spans.collect()["name"].to_list()


def test_reports_have_no_effect_before_the_start_and_after_the_end(tmp_path):
    driver = profiler_of(tmp_path).driver
    for _ in range(2):
        assert not driver.is_running
        assert driver.on_fetch(next, iter([1])) == 1
        driver.on_step()
        driver.on_phase("forward")
        driver.on_evaluation(True)
        assert not driver.is_evaluating
        driver.on_epoch(True)
        driver.on_loop_end()
        driver.follow_thread()
        driver.end()
        if not (tmp_path / "pulse").exists():
            driver.start()
            driver.end()
    assert len(frame_of(tmp_path)) == 0


def test_a_resumed_run_counts_from_its_position(tmp_path):
    driver = profiler_of(tmp_path).driver
    driver.start(Timestamp(epoch=1, batch=13, batch_in_epoch=5))
    assert driver.first_step == 13
    for _ in range(3):
        driver.on_step()
    driver.end()
    assert frame_of(tmp_path)["step"].to_list() == [13, 14, 15]
    assert frame_of(tmp_path)["epoch"].to_list() == [1] * 3


def test_a_step_may_be_reported_after_its_end():
    clock = FakeClock()
    driver = Profiler(SCHEDULE, MemoryTraceHandler(), clock=clock, quiet=True, spool_folder=False).driver
    driver.start(past_step_ends_ns=[0])
    clock.advance(10)
    driver.on_step(end_ns=6)
    clock.advance(3)
    driver.on_step()
    assert driver.step_times_ns(0, 2) == [5, 3]
    driver.end()


def test_a_listener_may_report_before_each_fetch(tmp_path, loader, step):
    driver, iterators = profiler_of(tmp_path).driver, []

    def listen(iterator):
        driver.on_step()
        iterators.append(iterator)

    driver.start(fetch_listener=listen)
    for batch in loader:
        step(batch)
    assert driver.num_backward_passes() == 8
    driver.end()
    assert len(iterators) == 9
    assert len(frame_of(tmp_path)) == 9


def test_errors_of_a_listener_and_bad_reports_are_logged_once_and_not_raised(tmp_path, loader, step, caplog):
    driver = profiler_of(tmp_path).driver
    driver.start(fetch_listener=lambda iterator: 1 / 0)
    for batch in loader:
        step(batch)
        driver.on_phase("sleeping")
        driver.on_step(samples="many")
    driver.on_step()
    driver.end()
    assert [record.getMessage() for record in caplog.records] == ["Profiling failed. Training continues."]


class Breaks(Callback):
    def epoch_start(self, state, logger):
        raise RuntimeError("planted")


def test_with_strict_errors_are_raised(tmp_path):
    driver = profiler_of(tmp_path, sources=[Breaks()], strict=True).driver
    driver.start()
    with pytest.raises(RuntimeError, match="planted"):
        driver.on_epoch(True)
    with pytest.raises(kinetoscope.KinetoscopeError, match="phase is one of"):
        driver.on_phase("sleeping")
    driver.end(clean=False)


def test_a_run_that_ends_by_an_error_saves_what_is_open(tmp_path):
    handler = MemoryTraceHandler()
    driver = profiler_of(tmp_path, handlers=[handler]).driver
    driver.start()
    driver.on_epoch(True, 8)
    for _ in range(3):
        driver.on_step()
    driver.on_evaluation(True)
    driver.end(clean=False)
    assert not driver.is_running
    assert len(handler.cycles) == 1


def test_another_thread_may_train_later(tmp_path):
    driver = profiler_of(tmp_path).driver
    driver.start()

    def train():
        driver.follow_thread()
        for _ in range(3):
            driver.on_step()

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    driver.end()
    assert len(frame_of(tmp_path)) == 3
