import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from kinetoscope.core.background.writer_thread import WriterThread, is_in_background
from support.signal_injection import InjectedSignals


def test_jobs_run_in_order_on_one_other_thread():
    writer, seen = WriterThread(), []
    for number in range(100):
        writer.submit("job", lambda number=number: seen.append((number, threading.current_thread())))
    assert writer.close(10)
    assert [number for number, _ in seen] == list(range(100))
    assert len({thread for _, thread in seen}) == 1
    assert threading.main_thread() not in {thread for _, thread in seen}


def test_no_thread_is_started_before_the_first_job():
    before = set(threading.enumerate())
    writer = WriterThread()
    assert set(threading.enumerate()) <= before  # one of an earlier test may have ended
    assert writer.close(1)


def test_a_job_that_raises_is_reported_and_the_next_one_runs():
    reported, seen = [], []
    writer = WriterThread(on_error=lambda name, error: reported.append((name, str(error))))
    writer.submit("bad", lambda: 1 / 0)
    writer.submit("good", lambda: seen.append(1))
    assert writer.close(10)
    assert reported == [("bad", "division by zero")]
    assert seen == [1]


def test_drain_waits_for_submitted_jobs_and_no_longer_than_its_timeout():
    writer, gate = WriterThread(), threading.Event()
    writer.submit("slow", gate.wait)
    assert not writer.drain(0.05)
    gate.set()
    assert writer.drain(10)
    assert writer.close(10)


def test_submitting_never_waits_for_a_job():
    writer, gate = WriterThread(), threading.Event()
    for _ in range(1000):
        writer.submit("slow", gate.wait)
    assert writer.num_waiting >= 998
    gate.set()
    assert writer.close(10)


def test_after_close_a_job_runs_on_the_calling_thread():
    writer, seen = WriterThread(), []
    writer.close(1)
    writer.submit("late", lambda: seen.append(threading.current_thread()))
    assert seen == [threading.current_thread()]


def test_a_finished_job_is_not_kept_alive():
    import weakref

    class Cycle:
        pass

    writer, cycle = WriterThread(), Cycle()
    reference = weakref.ref(cycle)
    writer.submit("save", lambda held=cycle: None)
    del cycle
    assert writer.drain(10)
    assert reference() is None
    writer.close(10)


def test_a_forked_child_does_none_of_its_parents_jobs(tmp_path):
    writer, gate = WriterThread(), threading.Event()
    writer.submit("wait", gate.wait)
    writer.submit("write", lambda: (tmp_path / str(os.getpid())).touch())
    if (child := os.fork()) == 0:
        writer.close(1)
        os._exit(0)
    os.waitpid(child, 0)
    gate.set()
    assert writer.close(10)
    assert os.listdir(tmp_path) == [str(os.getpid())]


def test_a_child_forked_while_another_thread_submits_does_not_hang():
    writer, locked, forked = WriterThread(), threading.Event(), threading.Event()

    def hold_the_lock():
        with writer._changed:  # submit() does this for a moment
            locked.set()
            forked.wait()

    thread = threading.Thread(target=hold_the_lock)
    thread.start()
    locked.wait()
    if (child := os.fork()) == 0:
        writer.submit("job", lambda: None)
        writer.close(1)
        os._exit(0)
    forked.set()
    thread.join()
    status = wait_for(child, seconds=20)
    assert status == 0
    assert writer.close(10)


FORKS = """
import os, sys, threading
from kinetoscope.core.background.writer_thread import WriterThread

def fork():
    begun.set()
    locked.wait()
    if (child := os.fork()) == 0:
        sys.exit()
    children.append(child)
    forked.set()

writer, children = WriterThread(), []
begun, locked, forked = (threading.Event() for _ in range(3))
writer.submit("fork", fork)
begun.wait()
with writer._changed:  # submit() does this for a moment
    locked.set()
    forked.wait()
assert writer.close(10)
print(os.waitpid(children[0], 0)[1])
"""


def test_a_child_that_a_job_forks_ends_with_sys_exit_though_another_thread_submits():
    quiet = ("-W", "ignore::DeprecationWarning")  # from Python 3.12 on, a fork in a process with threads warns
    done = subprocess.run([sys.executable, *quiet, "-c", FORKS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def wait_for(child, seconds):
    """Return the exit status of ``child``; kills it and returns None if it takes longer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def test_a_job_knows_whether_it_is_waited_for():
    found, go_on = [], threading.Event()

    def look() -> None:
        found.append(is_in_background())
        go_on.wait(60)
        found.append(is_in_background())

    writer = WriterThread()
    writer.submit("beside", look)
    while not found:
        time.sleep(0.001)
    waiting = threading.Thread(target=writer.close, args=(60,))
    waiting.start()
    while not writer.is_awaited:
        time.sleep(0.001)
    go_on.set()
    waiting.join()
    writer.submit("right here", lambda: found.append(is_in_background()))
    assert found == [True, False, False]


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), KeyboardInterrupt()])
def test_a_job_that_would_end_its_thread_is_reported_and_the_next_one_runs(error):
    reported, seen = [], []
    writer = WriterThread(on_error=lambda name, error: reported.append(error))
    writer.submit("bad", lambda: (_ for _ in ()).throw(error))
    writer.submit("good", lambda: seen.append(1))
    assert writer.drain(60)
    assert writer.close(60)
    assert (reported, seen) == ([error], [1])


def test_if_the_writer_thread_has_died_the_waiting_thread_does_the_rest(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    seen, forward = [], threading.Event()
    writer = WriterThread(on_error=lambda name, error: 1 / 0)
    writer.submit("bad", lambda: forward.wait(60) and 1 / 0)
    writer.submit("good", lambda: seen.append(1))
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "kinetoscope-writer"]
    waiting = threading.Thread(target=writer.close, args=(600,))
    waiting.start()
    while not writer.is_awaited:
        time.sleep(0.001)
    forward.set()
    thread.join(60)
    waiting.join(60)
    assert not waiting.is_alive()
    assert seen == [1]


def submit_at_place(place):
    """Press Ctrl-C while the first job is submitted. Gives the threads that ran the next ones, and whether that was the
    last place."""
    presses, threads, writer = InjectedSignals(signal.SIGINT, place, WriterThread.submit), [], WriterThread("pressed")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        presses.start()
        with contextlib.suppress(KeyboardInterrupt):
            writer.submit("first", lambda: None)
    finally:
        presses.stop()
        signal.signal(signal.SIGINT, before)
    for _ in range(3):
        writer.submit("next", lambda: threads.append(threading.current_thread()))
    assert sum(thread.name == "pressed" for thread in threading.enumerate()) <= 1
    assert writer.close(60)
    return threads, presses.num_places < place


def test_ctrl_c_at_any_point_of_a_submit_leaves_one_thread_for_later_jobs():
    for place in range(1, 1_000):
        threads, is_last = submit_at_place(place)
        assert (len(threads), len(set(threads))) == (3, 1)
        if is_last:
            break
    assert place > 5
