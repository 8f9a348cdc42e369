"""Training runs that hang in one way each, and some that only take long: `python hangs.py KIND FOLDER`."""

import ctypes
import hashlib
import io
import os
import pdb
import signal
import sys
import threading
import time

import kinetoscope

NUM_USUAL = 30
AT_WORK_S = 9.0


def usual_step(kind):
    time.sleep(
        0.1 if kind == "call_that_holds_the_gil" else 0.005
    )  # usual durations must be known before probes are impossible


def lock(profiler):
    held = threading.Lock()
    held.acquire()
    held.acquire()  # the line at which it hangs


def lock_that_is_freed(profiler):
    """Once the run's folder has the file ``go_on``. It is killed before our thread samples again."""
    held = threading.Lock()
    held.acquire()
    threading.Thread(target=free_on_request, args=[held, f"{sys.argv[2]}/go_on"], daemon=True).start()
    held.acquire()
    with profiler.eval():
        killed(profiler)


def free_on_request(held, file):
    while not os.path.exists(file):
        time.sleep(0.01)
    held.release()


def call_without_the_gil(profiler):
    ctypes.CDLL(None).pause()


def call_that_holds_the_gil(profiler):
    ctypes.PyDLL(None).sleep(10_000)


def poll(profiler):
    """It wakes up again and again, and does nothing."""
    never = threading.Event()
    while not never.wait(0.1):
        pass


def busy(profiler):
    until = time.monotonic() + AT_WORK_S
    while time.monotonic() < until:
        pass


def computing(profiler):
    """Computation without the GIL, as in operators: probing threads do not wait for it."""
    until = time.monotonic() + AT_WORK_S
    while time.monotonic() < until:
        hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000)


def debugger(profiler):
    never_written, _ = os.pipe()
    pdb.Pdb(stdin=os.fdopen(never_written), stdout=io.StringIO()).set_trace()
    time.sleep(0.001)


def stopped_at_work(profiler):
    """Stop by a signal. Its own work takes less than `AT_WORK_S`."""
    os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(30):
        time.sleep(0.1)


def lock_on_another_thread(profiler):
    """The loop runs on it."""
    lock(profiler)


def after_the_loop(profiler):
    """Work of a script after training."""
    time.sleep(AT_WORK_S)


def evaluation(profiler):
    with profiler.eval():
        time.sleep(AT_WORK_S)


def slow_steps(profiler):
    """They take longer from now on, but none so long."""
    for _ in profiler.batches(range(4)):
        time.sleep(AT_WORK_S / 8)


def killed(profiler):
    os.kill(os.getpid(), signal.SIGKILL)


def stopped(profiler):
    os.kill(os.getpid(), signal.SIGSTOP)


KINDS = {
    kind.__name__: kind
    for kind in (
        *(
            lock,
            lock_that_is_freed,
            call_without_the_gil,
            call_that_holds_the_gil,
            poll,
            busy,
            computing,
            debugger,
            stopped_at_work,
            lock_on_another_thread,
            evaluation,
            slow_steps,
            killed,
            stopped,
        ),
    )
}


def train(kind, folder):
    never = kinetoscope.cyclic_schedule(skip_first=10**9, per="run")
    with kinetoscope.profile(folder, schedule=never, torch=False, system=False, quiet=True, hangs=True) as profiler:
        thread = threading.Thread(target=loop, args=[profiler, kind])
        (thread.start if kind.endswith("another_thread") else thread.run)()
        if thread.ident is not None:
            thread.join()
        if kind == "after_the_loop":
            after_the_loop(profiler)


def loop(profiler, kind):
    for batch in profiler.batches(range(NUM_USUAL + 1)):
        usual_step(kind)
        if batch == NUM_USUAL and kind in KINDS:
            KINDS[kind](profiler)


if __name__ == "__main__":
    train(*sys.argv[1:])
