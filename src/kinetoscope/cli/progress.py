"""Parallel work on several files, with a progress bar on stderr; Ctrl-C ends it."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any, TextIO, TypeVar, cast

Progress = Callable[[int, int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")

_STOP_TIMEOUT_S = 0.5


@contextmanager
def progress_bar(verb: str) -> Iterator[Progress]:
    """Yield a callback that draws a progress bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(file=cast("IO[str]", _TolerantStream(sys.stderr))), transient=True) as bar:
        task = bar.add_task(verb, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


@contextmanager
def elapsed_line() -> Iterator[Callable[[str, float], object]]:
    """Yield a function that shows the time since its call, of at most some seconds, if stderr is a terminal.

    The line is redrawn once a second: more would disturb what is measured meanwhile.
    """
    if not sys.stderr.isatty():
        yield lambda label, limit_s: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TextColumn

    text = "{task.elapsed:.0f} s of at most {task.total:.0f} s: {task.description}"
    console = Console(file=cast("IO[str]", _TolerantStream(sys.stderr)))
    with Bar(TextColumn(text, markup=False), console=console, transient=True, refresh_per_second=1) as bar:
        console.show_cursor()  # or it stays hidden after Ctrl-Z
        task = bar.add_task("", visible=False, total=0)
        yield lambda label, limit_s: bar.reset(task, description=label, total=limit_s, visible=True)


class _TolerantStream:
    """A stream that ignores errors of a closed terminal: the work continues without a progress bar."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a string unless the terminal is closed."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush unless the terminal is closed."""
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during the work; ``written`` are the files that are complete."""

    def __init__(self, written: Sequence[Path]) -> None:
        super().__init__()
        self.written = written


def run_parallel(
    verb: str,
    work: Callable[[Item, Progress], Result],
    items: Sequence[Item],
    jobs: int | None = None,
    output_of: Callable[[Item, Result], Path | None] = lambda item, result: None,
) -> list[Result]:
    """Return the results of ``work`` for each item, ``jobs`` at a time, with one progress bar.

    Args:
        verb: the label of the progress bar.
        work: called with an item and a callback for its progress.
        items: the items, in the order of the results.
        jobs: number of threads; None for one per core.
        output_of: returns the file that was written for an item, if any.

    Raises:
        Interrupted: soon after Ctrl-C. The progress callback then raises KeyboardInterrupt; work that never calls it
            runs until the process ends.
        Exception: the first error of an item, after all others are done.
    """
    with _catch_ctrl_c() as interrupt, progress_bar(verb) as on_progress:
        shared = _SharedProgress(on_progress, len(items))
        executor = ThreadPoolExecutor(max(1, jobs) if jobs is not None else None)
        futures = [executor.submit(work, item, shared.progress_of(number)) for number, item in enumerate(items)]
        _wait_for_all(futures, interrupt)
        if interrupt.done():
            shared.is_stopped.set()
            executor.shutdown(wait=False, cancel_futures=True)
            wait([future for future in futures if not future.cancelled()], _STOP_TIMEOUT_S)
            results = [(item, future) for item, future in zip(items, futures, strict=True) if _is_finished(future)]
            written = [output_of(item, future.result()) for item, future in results]
            raise Interrupted([path for path in written if path is not None])
        executor.shutdown()
    return [future.result() for future in futures]


@contextmanager
def _catch_ctrl_c() -> "Iterator[Future[None]]":
    """Yield a future that is done at the first Ctrl-C.

    A thread waits for the signal, which is blocked in threads that start later: polars has its own handler, and
    Python's runs only when the main thread gets to it. Where signals cannot be blocked, Python handles Ctrl-C.
    """
    pressed: Future[None] = Future()
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as in background jobs of a script
    if is_ignored or not hasattr(signal, "pthread_sigmask"):
        yield pressed
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def wait_for_signal() -> None:
        signal.sigwait({signal.SIGINT})
        pressed.set_result(None)

    waiter = Thread(target=wait_for_signal, daemon=True)
    waiter.start()
    try:
        yield pressed
    finally:
        if not pressed.done() and waiter.ident is not None:
            signal.pthread_kill(waiter.ident, signal.SIGINT)
        waiter.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for_all(futures: "Sequence[Future[Any]]", interrupt: "Future[None]") -> None:
    """Wait for all futures, or for Ctrl-C."""
    pending = {*futures}
    while pending and not interrupt.done():
        _, pending = wait({*pending, interrupt}, return_when=FIRST_COMPLETED)
        pending.discard(interrupt)


def _is_finished(future: "Future[Any]") -> bool:
    """Return whether a future has a result."""
    return future.done() and not future.cancelled() and future.exception() is None


class _SharedProgress:
    """Combined progress of several items."""

    def __init__(self, on_progress: Progress, num_items: int) -> None:
        self.is_stopped = Event()
        self._on_progress = on_progress
        self._done = [(0, 0)] * num_items

    def progress_of(self, number: int) -> Progress:
        """Return the callback for one of the items."""

        def progress(done: int, total: int) -> None:
            if self.is_stopped.is_set():
                raise KeyboardInterrupt
            self._done[number] = done, total
            self._on_progress(sum(done for done, _ in self._done), sum(total for _, total in self._done))

        return progress
