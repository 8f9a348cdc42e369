"""cli: work on files. Files flow in, their results out; a bar on stderr shows bytes done, and Ctrl-C ends the work."""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Event
from typing import TypeVar

Progress = Callable[[int, int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def progress_bar(verb: str) -> Iterator[Progress]:
    """A callback that draws a bar, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def work_on_each(
    verb: str, work: Callable[[Item, Progress], Result], items: Sequence[Item], jobs: int | None = None
) -> list[Result]:
    """What ``work`` makes of each item, ``jobs`` at a time, with one bar for all; it tells its callback how far it is.

    Raises the first error once the others are done, and KeyboardInterrupt as soon as the work under way has stopped:
    its callback raises that too.
    """
    with progress_bar(verb) as tell:
        shared = _Shared(tell, len(items))
        if len(items) == 1:
            return [work(items[0], shared.progress_of(0))]  # on the main thread, where Ctrl-C also ends waiting
        with ThreadPoolExecutor(max(1, jobs) if jobs is not None else None) as executor:
            try:
                futures = [executor.submit(work, item, shared.progress_of(number)) for number, item in enumerate(items)]
                wait(futures)
            except KeyboardInterrupt:
                shared.is_stopped.set()
                executor.shutdown(wait=False, cancel_futures=True)
                raise
    return [future.result() for future in futures]


class _Shared:
    """How far the work on each of several items is."""

    def __init__(self, tell: Progress, num_items: int) -> None:
        self.is_stopped = Event()
        self._tell = tell
        self._done = [(0, 0)] * num_items

    def progress_of(self, number: int) -> Progress:
        """The callback for one of the items."""

        def progress(done: int, total: int) -> None:
            if self.is_stopped.is_set():
                raise KeyboardInterrupt
            self._done[number] = done, total
            self._tell(sum(done for done, _ in self._done), sum(total for _, total in self._done))

        return progress
