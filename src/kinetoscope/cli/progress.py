"""Works on several files at a time, with a progress bar on stderr; Ctrl-C ends the work."""

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
    """A callback that draws a bar if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(file=cast("IO[str]", _TolerantStream(sys.stderr))), transient=True) as bar:
        task = bar.add_task(verb, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


class _TolerantStream:
    """A terminal, to which nothing more is written once it is gone: the work goes on without a bar."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during the work. ``written`` are the files that are complete."""

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
    """The results of ``work`` for each item, ``jobs`` at a time, with one bar; ``work`` reports to its callback.

    ``output_of`` returns the file that was written, if any. Raises the first error when all others are done, and
    `Interrupted` soon after Ctrl-C: then the callback raises KeyboardInterrupt. Work that does not call it runs on
    until the process ends.
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
    """A future that is done at the first Ctrl-C.

    A thread waits for the signal, which is blocked in threads that start later: polars has its own handler, and
    Python's runs only when the main thread gets to it. Where signals cannot be blocked, Python handles Ctrl-C.
    """
    pressed: Future[None] = Future()
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as it is in the background of a script
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
    """Waits for the end of all futures, or for Ctrl-C."""
    pending = {*futures}
    while pending and not interrupt.done():
        _, pending = wait({*pending, interrupt}, return_when=FIRST_COMPLETED)
        pending.discard(interrupt)


def _is_finished(future: "Future[Any]") -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


class _SharedProgress:
    """The progress of each of several items."""

    def __init__(self, on_progress: Progress, num_items: int) -> None:
        self.is_stopped = Event()
        self._on_progress = on_progress
        self._done = [(0, 0)] * num_items

    def progress_of(self, number: int) -> Progress:
        """The callback for one of the items."""

        def progress(done: int, total: int) -> None:
            if self.is_stopped.is_set():
                raise KeyboardInterrupt
            self._done[number] = done, total
            self._on_progress(sum(done for done, _ in self._done), sum(total for _, total in self._done))

        return progress
