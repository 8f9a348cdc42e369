"""Loading of traces as frames, with a progress bar, and of the findings of a run."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kinetoscope.cli.progress import Progress, Result, run_parallel
from kinetoscope.frames.load import list_traces, load_one
from kinetoscope.frames.trace import Trace

if TYPE_CHECKING:
    from kinetoscope.analysis.findings.finding import Finding


def load_traces(names: Iterable[str], *, cache: bool = True, attempt: int | None = None) -> list[Trace]:
    """Return the traces of all ``names`` as frames."""
    return read_each(partial(load_one, cache=cache), [found for name in names for found in list_traces(name, attempt)])


def read_findings(run: str) -> "Sequence[Finding]":
    """Return the findings of a run, in the order of `kinetoscope summary`."""
    from kinetoscope.analysis.analyze import analyze
    from kinetoscope.cli.paths import require_existing

    require_existing([run])
    return analyze(run).findings


def read_each(read: Callable[..., Result], names: Sequence[Any], *values: Sequence[Any]) -> list[Result]:
    """Return the result of ``read`` for each file or trace, in parallel, with a progress bar.

    ``read`` is called with an element of ``names``, one of each of ``values``, and ``on_bytes``.
    """
    from kinetoscope.merge.merge_traces import ByteProgress  # here, since a cached report needs no reading

    def work(given: tuple[Any, ...], on_progress: Progress) -> Result:
        files = [name for name in given[:1] if isinstance(name, str)]
        return read(*given, on_bytes=ByteProgress(files, on_progress, num_passes=1).advance)

    return run_parallel("reading", work, list(zip(names, *values, strict=True)))
