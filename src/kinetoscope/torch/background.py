"""torch: exports beside the training. Finished results flow in; their files flow out on the writer thread, in order."""

from functools import partial
from pathlib import Path

from kinetoscope.torch.results import KinetoResults
from kinetoscope.writing.writer_thread import WriterThread

_WAIT_S = 600.0  # how long leaving the profiler waits for files that are still being written


class BackgroundExport:
    """Writes traces on a thread of its own, which is there only while there is something to write."""

    def __init__(self) -> None:
        self._writer: WriterThread | None = None
        self._errors: list[BaseException] = []

    def export(self, results: KinetoResults, path: Path) -> None:
        """Writes the window to ``path``, soon."""
        if self._writer is None:
            self._writer = WriterThread("kinetoscope-torch-writer", on_error=self._note)
        self._writer.submit(f"export {path}", partial(results.export_chrome_trace, path))

    def close(self) -> None:
        """Waits until every file is complete; raises the first error there was, with the others as its notes."""
        writer, self._writer = self._writer, None
        if writer is not None and not writer.close(_WAIT_S):
            self._errors.append(TimeoutError(f"Traces were not written within {_WAIT_S:.0f} s; the last are missing."))
        errors, self._errors = self._errors, []
        if errors:
            for error in errors[1:]:
                errors[0].add_note(f"Another trace was not written either: {error!r}")
            raise errors[0]

    def _note(self, name: str, error: BaseException) -> None:
        self._errors.append(error)
