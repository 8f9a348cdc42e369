"""The end of a run: every step is run, even if another one raises, and the process's state is restored."""

import atexit
import math
import os
import signal
import threading
import time

import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.core.job.event import Callback
from kinetoscope.recording.markers.process import RUN_FILE_VARIABLE, this_process
from kinetoscope.recording.run.lifecycle import RunLifecycle
from kinetoscope.recording.run.shutdown import ShutdownSteps
from kinetoscope.recording.window.trace_handler import TraceHandler
from kinetoscope.spool.contents import read_spool_folder
from kinetoscope.testing import MemoryTraceHandler

ComposerProfiler = pytest.importorskip("kinetoscope.composer", reason="needs torch").Profiler
ALWAYS = lambda state: ProfilerAction.ACTIVE  # noqa: E731


@pytest.fixture(autouse=True)
def the_process_is_as_it_was_before(monkeypatch):
    """Check what `conftest` does not: the handler of Ctrl-C, the environment, call at exit, and that another profiler
    can run."""
    called_at_exit = []
    monkeypatch.setattr(atexit, "register", called_at_exit.append)
    monkeypatch.setattr(
        atexit, "unregister", lambda function: called_at_exit.remove(function) if function in called_at_exit else None
    )
    interrupt = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is interrupt
    assert RUN_FILE_VARIABLE not in os.environ
    assert [
        function for function in called_at_exit if isinstance(getattr(function, "__self__", None), RunLifecycle)
    ] == []
    with Profiler(ALWAYS):
        pass


class Raising(Callback):
    """A source that raises as it closes."""

    def __init__(self, error):
        self.error, self.num_closed = error, 0

    def close(self, state, logger):
        self.num_closed += 1
        raise self.error

    def post_close(self):
        self.num_closed += 1
        raise self.error


class Blocking(TraceHandler):
    """A handler that blocks the writer thread until it is released."""

    def __init__(self):
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self.num_spans, self.num_closed = 0, 0

    def process_cycle(self, cycle):
        self.has_begun.set()
        assert self.may_end.wait(60)
        self.num_spans += sum(thread.num_records for thread in cycle.threads)

    def close(self, state, logger):
        self.num_closed += 1


def record(profiler, num_spans=5):
    for _ in range(num_spans):
        with profiler.marker("work"):
            pass


def parts_in(spool_folder):
    tracks = [track for process in read_spool_folder(spool_folder).processes for track in process.tracks]
    return [part for track in tracks for part in track.parts]


class CtrlC:
    """Sends Ctrl-C once the profiler waits for a save."""

    def __init__(self, profiler, handler, signals=(signal.SIGINT,)):
        self._thread = threading.Thread(target=self._press, args=(profiler, handler, signals))
        self._thread.start()

    def _press(self, profiler, handler, signals):
        assert handler.has_begun.wait(60)
        while not profiler.lifecycle.services.delivery.writer.is_awaited:
            handler.may_end.wait(0.001)
        for number in signals:
            os.kill(os.getpid(), number)

    def join(self):
        self._thread.join(60)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_an_error_of_a_source_as_it_closes_is_raised_when_everything_is_saved(tmp_path, error):
    first, second, handler = Raising(error), Raising(error), MemoryTraceHandler()
    json_handler = JSONTraceHandler(f"{tmp_path}/traces", merged_trace_filename=None)
    profiler = Profiler(ALWAYS, [handler, json_handler], sources=[first, second]).start()
    record(profiler)
    with pytest.raises(type(error)):
        profiler.close()
    assert (first.num_closed, second.num_closed) == (2, 2)
    assert len(handler.spans("work")) == 5
    assert len(list((tmp_path / "traces").glob("ep*.json"))) == 1
    assert not (tmp_path / "live").exists()
    profiler.close()
    assert first.num_closed == 2


def test_after_an_error_in_the_loop_and_one_in_a_close_nothing_is_left_behind():
    with pytest.raises(KeyboardInterrupt):
        with Profiler(ALWAYS, sources=[Raising(KeyboardInterrupt())]):
            raise ValueError("diverged")


def test_disabled_source_is_closed():
    class Failing(Callback):
        is_closed = False

        def batch_end(self, state, logger):
            raise RuntimeError("broken")

        def close(self, state, logger):
            self.is_closed = True

    source = Failing()
    with Profiler(ALWAYS, sources=[source]) as profiler:
        for _ in profiler.batches(range(2)):
            pass
    assert source.is_closed


def interrupted_in_its_close(folder):
    """Return a profiler whose close Ctrl-C has ended, while it waited for the handler to save."""
    handler = Blocking()
    profiler = Profiler(ALWAYS, handler, spool_folder=folder).start()
    record(profiler)
    pressing = CtrlC(profiler, handler)
    with pytest.raises(KeyboardInterrupt):
        profiler.close()
    pressing.join()
    return profiler, handler


def test_ctrl_c_ends_the_wait_for_a_save_and_another_close_finishes_it(tmp_path):
    profiler, handler = interrupted_in_its_close(tmp_path)
    assert (tmp_path / "live").exists()
    assert handler.num_closed == 0
    with Profiler(ALWAYS, MemoryTraceHandler(), spool_folder=tmp_path):  # another run in between
        pass
    handler.may_end.set()
    profiler.close()
    assert (handler.num_spans, handler.num_closed) == (5, 1)
    assert not (tmp_path / "live").exists()
    profiler.close()
    assert handler.num_closed == 1


def test_a_close_that_may_take_for_ever_waits_for_all(tmp_path):
    with Profiler(
        ALWAYS, JSONTraceHandler(str(tmp_path / "traces")), close_timeout_s=math.inf, strict=True
    ) as profiler:
        record(profiler)
    assert (tmp_path / "traces" / "merged_trace.json").exists()


class Slow(MemoryTraceHandler):
    """Takes longer to save than the close waits for other processes."""

    def process_cycle(self, cycle):
        time.sleep(0.5)
        super().process_cycle(cycle)


def test_the_limit_of_a_close_is_for_other_processes_and_not_for_what_is_in_memory(caplog):
    handler = Slow()
    with Profiler(ALWAYS, handler, close_timeout_s=0.05, strict=True) as profiler:
        profiler.step()
    assert len(handler.cycles) == 1
    assert not caplog.records


def test_without_another_close_the_writer_thread_saves_its_jobs_in_the_background(tmp_path):
    profiler, handler = interrupted_in_its_close(tmp_path)
    handler.may_end.set()
    assert profiler.lifecycle.drain(60)
    assert handler.num_spans == 5
    assert [len(part) for path in tmp_path.glob("live/*") for part in parts_in(path)] == []  # nothing to recover
    profiler.close()
    assert not (tmp_path / "live").exists()


def test_ctrl_c_in_the_close_of_a_handler_ends_that_and_the_others_close():
    class Slow(TraceHandler):
        def close(self, state, logger):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(60)

    class Other(TraceHandler):
        seconds_left = None

        def close(self, state, logger):
            self.seconds_left = state.profiler.run.seconds_to_close()

    other = Other()
    profiler = Profiler(ALWAYS, [Slow(), other]).start()
    with pytest.raises(KeyboardInterrupt):
        profiler.close()
    assert other.seconds_left == 0.0


def test_ctrl_c_between_two_steps_waits_for_the_step_and_then_nothing_is_waited_for():
    results = []
    with pytest.raises(KeyboardInterrupt), ShutdownSteps(60.0, on_error=None) as steps:
        steps.run_step(os.kill, os.getpid(), signal.SIGINT)
        steps.run_step(results.append, "a step")
        steps.run_step(lambda: results.append(steps.wait_for(lambda: steps.seconds_left)))
    assert results == ["a step", 0.0]


def test_ctrl_c_while_a_wait_acquires_its_lock_again_ends_the_wait():
    """A ``with`` of a lock then fails to release it, and its error takes the place of the KeyboardInterrupt."""
    lock, reported = threading.Lock(), []

    def wait():
        with lock:
            lock.release()  # as threading.Condition.wait does
            signal.raise_signal(signal.SIGINT)
            lock.acquire()

    with pytest.raises(KeyboardInterrupt), ShutdownSteps(1.0, lambda *error: reported.append(error)) as steps:
        steps.run_step(steps.wait_for, wait)
        assert steps.is_interrupted
    assert reported == []


def test_error_raised_while_ctrl_c_is_handled_is_reported():
    def save():
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise OSError("The disk is full.")

    reported = []
    with pytest.raises(KeyboardInterrupt), ShutdownSteps(1.0, lambda *error: reported.append(error)) as steps:
        steps.run_step(steps.wait_for, save)
    assert [str(error) for _, error in reported] == ["The disk is full."]


def test_a_handler_of_ones_own_for_ctrl_c_is_left_alone():
    pressed = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        with Profiler(ALWAYS, MemoryTraceHandler()) as profiler:
            profiler.run.contribute(lambda contributions: os.kill(os.getpid(), signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [signal.SIGINT]


def test_a_run_within_the_worker_of_another_run_gives_the_workers_environment_back(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv(RUN_FILE_VARIABLE, "/run/of/the/parent")
        with Profiler(ALWAYS, MemoryTraceHandler(), spool_folder=tmp_path):
            assert os.environ[RUN_FILE_VARIABLE] != "/run/of/the/parent"
        assert os.environ[RUN_FILE_VARIABLE] == "/run/of/the/parent"


def test_the_composer_face_ends_likewise(tmp_path, monkeypatch):
    from kinetoscope import Event, State

    monkeypatch.chdir(tmp_path)
    handler, state = Blocking(), State(run_name="run")
    no_sources = {"sys_prof_cpu": False, "torch_prof_profile_memory": False, "torch_prof_with_flops": False}
    profiler = ComposerProfiler(ALWAYS, [handler], **no_sources)
    profiler.bind_to_state(state)
    profiler.run_event(Event.INIT, state)
    profiler.run_event(Event.FIT_START, state)
    record(profiler)
    pressing = CtrlC(profiler, handler)
    with pytest.raises(KeyboardInterrupt):
        profiler.close()
    pressing.join()
    handler.may_end.set()
    profiler.close()
    assert handler.num_spans == 5


@pytest.mark.parametrize("way", ["close", "SIGTERM"])
def test_an_exception_of_another_signals_handler_waits_until_everything_is_saved(tmp_path, caplog, way):
    """As torch's for SIGCHLD raises, when a signal to the process group has ended DataLoader workers as well."""

    def handle(number, frame):
        handled.append(number)
        raise RuntimeError("DataLoader worker is killed by signal: Terminated.")

    class Signalling(Callback):
        def close(self, state, logger):
            signal.raise_signal(signal.SIGCHLD)
            closed.append(self)

    handled, closed, ended_by = [], [], []
    before = [signal.signal(signal.SIGCHLD, handle), signal.getsignal(signal.SIGTERM)]
    try:
        profiler = Profiler(ALWAYS, JSONTraceHandler(str(tmp_path)), sources=[Signalling(), Signalling()], quiet=True)
        profiler.start()
        list(profiler.batches(range(2)))
        if way == "close":
            with pytest.raises(RuntimeError, match="DataLoader worker"):
                profiler.close()
        else:
            termination = this_process._termination
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(os, "kill", lambda pid, number: ended_by.append(number))
                termination._on_signal(signal.SIGTERM, None)
            assert ended_by[-1] == signal.SIGTERM
    finally:
        signal.signal(signal.SIGCHLD, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert len(handled) >= len(closed) == 2  # the merge process may have ended, too
    assert list(tmp_path.glob("ep*.json"))
    assert "failed" not in caplog.text
