"""cli: progress bars. Bytes done flow in; a bar on stderr flows out, where somebody looks at it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
OneOfMany = Callable[[], Progress | None]


@contextmanager
def progress_bar(verb: str) -> Iterator[Progress | None]:
    """A callback that draws a bar; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def progress_of_many(verb: str) -> Iterator[OneOfMany]:
    """What makes a callback for each of many files, one after the other or at a time, that share one bar."""
    done: dict[int, tuple[int, int]] = {}

    def one_more() -> Progress | None:
        number = len(done)
        done[number] = 0, 0

        def tell(num_done: int, num_all: int) -> None:
            done[number] = num_done, num_all
            if on_all is not None:
                on_all(sum(it for it, _ in done.values()), sum(it for _, it in done.values()))

        return tell if on_all is not None else None

    with progress_bar(verb) as on_all:
        yield one_more
