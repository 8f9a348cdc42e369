"""recording: files that last only until their cycle is saved. They lie in the live folder, cycle by cycle.

So `recover` finds what was contributed to a cycle that a kill left unsaved, and deletes the rest with the live folder.
Where a run has no live folder they lie among the system's temporary files, where those of killed processes go when
another one needs some.
"""

import itertools
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from kinetoscope.formats.live_run import contributed_folder
from kinetoscope.recording.cycle import Contributions
from kinetoscope.writing.atomic_file import atomic_file, temporary_folder

_MOST_LETTERS = 60  # of a name: four bytes each at most


class TemporaryFiles:
    """Those of one run; ``live_folder()`` is its live folder, or None while it has none."""

    def __init__(self, live_folder: Callable[[], Path | None]) -> None:
        self._live_folder = live_folder
        self._elsewhere: Path | None = None
        self._undo = ExitStack()
        self._serial = itertools.count()

    def folder(self, cycle: int) -> Path:
        """Where those of a cycle lie; for the writer thread. Raises OSError if there is no place for them."""
        folder = self._in_live_folder(cycle)
        if folder is None:
            self._elsewhere = self._elsewhere or self._undo.enter_context(temporary_folder())
            folder = contributed_folder(self._elsewhere, cycle)
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, file: Path, cycle: int) -> Callable[[Contributions], None]:
        """Keeps what ``file`` holds, so that its owner may delete it; what is returned contributes it to its cycle.

        By a second link, or where there can be none by reading it on the writer thread. Raises OSError if it cannot be
        read.
        """
        folder, name = self._in_live_folder(cycle), f"{next(self._serial)}-{file.name[-_MOST_LETTERS:]}"
        if folder is not None:
            with suppress(OSError):  # another file system, or one without links
                os.link(file, folder / name)
                return lambda contributions: contributions.add_temporary(folder / name)
        stream = file.open("rb")
        return lambda contributions: contributions.add_temporary(self._copy(stream, self.folder(cycle) / name))

    def close(self) -> None:
        """Deletes those that are not in a live folder."""
        self._elsewhere = None
        self._undo.close()

    def _copy(self, stream: BinaryIO, kept: Path) -> Path:
        stream.seek(0)  # this may be called again, after an error
        with atomic_file(kept) as copy:
            shutil.copyfileobj(stream, copy, 1 << 20)
        stream.close()
        return kept

    def _in_live_folder(self, cycle: int) -> Path | None:
        live = self._live_folder()
        with suppress(OSError):
            if live is not None and live.is_dir():
                folder = contributed_folder(live, cycle)
                folder.mkdir(parents=True, exist_ok=True)
                return folder
        return None
