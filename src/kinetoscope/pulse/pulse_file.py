"""Pulses in open files, which their processes may be writing."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kinetoscope.errors import TraceFileError
from kinetoscope.pulse.header import PulseHeader, decode_header, require_pulse, require_whole
from kinetoscope.pulse.layout import FILE_BYTES, MAGIC, NOW, NOW_AT, PulseNow
from kinetoscope.pulse.node_copier import COPY_SUFFIX, find_copied_pulses

_PAUSES_S = (0.0, 0.002, 0.002, 0.002, 0.002)
"""Time before each further try to read a pulse while nothing is written: the second one nearly always succeeds."""

_MAX_COPY_BYTES = 1 << 28  # 128 ranks of a node, with all their blocks


class PulseStart(NamedTuple):
    """The first bytes of a pulse; it ``is_whole`` if no step was written meanwhile."""

    content: bytes
    header: PulseHeader
    now: PulseNow
    is_whole: bool


@dataclass(frozen=True, slots=True)
class PulseFile:
    """A pulse in an open file, from ``offset`` on. Bytes after ``length`` are zeros, which copies leave out."""

    path: Path
    descriptor: int
    offset: int
    length: int

    def read(self, size: int, at: int) -> bytes:
        """Return ``size`` bytes of the pulse."""
        return os.pread(self.descriptor, max(0, min(size, self.length - at)), self.offset + at).ljust(size, b"\0")

    def read_now(self) -> PulseNow:
        """Return the numbers that change with each step."""
        return PulseNow._make(NOW.unpack(self.read(NOW.size, NOW_AT)))

    def read_start(self, size: int) -> PulseStart:
        """Return the first ``size`` bytes, of a moment at which no process wrote to them, if there is one soon.

        Raises `TraceFileError` if it is no pulse of this version, or has impossible numbers.
        """
        content, now, is_whole, is_still = self._read_once(size)
        for pause_s in _PAUSES_S:
            if is_still:
                break
            time.sleep(pause_s)
            content, now, is_whole, is_still = self._read_once(size)
        return PulseStart(content, decode_header(content, self.path), now, is_whole)

    def _read_once(self, size: int) -> tuple[bytes, PulseNow, bool, bool]:
        """Return the first bytes and their numbers; whether no step was written meanwhile, and whether nothing was."""
        content = self.read(size, 0)
        require_pulse(content, self.path)
        now, later = PulseNow.of(content), self.read_now()
        is_whole = now.sequence % 2 == 0 and now.sequence == later.sequence
        return content, now, is_whole, is_whole and now == later and now.is_possible


def find_pulse_files(descriptor: int, path: Path) -> Iterator[PulseFile]:
    """Yield the pulse in an open file, or those in a copy of several, as far as it is whole.

    A file that its process has just made has none. Raises `TraceFileError` for a file of the wrong size.
    """
    size_bytes = os.fstat(descriptor).st_size
    if not path.name.endswith(COPY_SUFFIX):
        pulse = PulseFile(path, descriptor, 0, FILE_BYTES)
        if pulse.read(len(MAGIC), 0).strip(b"\0"):
            require_whole(size_bytes, path)
            yield pulse
        return
    if size_bytes > _MAX_COPY_BYTES:
        raise TraceFileError(f"{path} is no copy of pulses: it is too large.")
    for offset, length in find_copied_pulses(descriptor):
        yield PulseFile(path, descriptor, offset, length)
