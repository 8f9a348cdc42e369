"""A trace as one Parquet file, and where the cache of such files is.

The file's metadata hold the tracks and the header, and what the trace was read from: if that has another size, another
time of change, or was read by another version, it is read again.

The cache is in the user's own cache folder, which nobody else can read or write, and from which the files that were
unused longest are deleted. Reports on runs are there too. It is never in the folder of a run: anybody may have filled
that, so a cache there could show events that are in no trace.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from kinetoscope.errors import OutputError, TraceFileError
from kinetoscope.formats.chrome_event import FURTHEST_NS
from kinetoscope.formats.header import Count, require_ranges, told
from kinetoscope.formats.parquet import require_small
from kinetoscope.table.events import TraceAbout, TraceEvents, event_schema
from kinetoscope.training.run_folder import RunFolder
from kinetoscope.training.wording import counted
from kinetoscope.writing.atomic_file import atomic_file

_VERSION = 3  # increased when the columns or their meaning change
_KEY = "kinetoscope"
_LEVEL = 1
_TIMES = ("ts", "dur")
_NEVER_NULL = ("kind", "phase", "name", "track")


Place = str | int | float | bool | None
SUFFIX, REPORT_SUFFIX = ".parquet", ".report.json"
MOST_BYTES = 2_000_000_000
_IN_USE_S = 3600  # a trace may still read from a file that was used so recently


class _Header(msgspec.Struct):
    """The header of a Parquet file: everything about its trace except the events."""

    version: int
    fingerprint: str | None
    tracks: list[tuple[Place, Place]]
    header: dict[str, Any]
    repairs: list[str]
    base_ns: Count
    has_clock: bool
    written: list[tuple[Place, Place]] = []


_READER = msgspec.json.Decoder(_Header | None)  # made once: msgspec must not learn a struct on two threads at once


def write_parquet(trace: TraceEvents, path: str | os.PathLike[str], fingerprint: str | None = None) -> None:
    """Writes a complete trace, for `read_parquet`. The file appears when it is complete.

    Raises `OutputError` if it cannot be written.
    """
    about = trace.about
    said = _Header(
        _VERSION, fingerprint, about.tracks, about.header, about.repairs, about.base_ns, about.has_clock, about.written
    )
    try:
        metadata = {_KEY: msgspec.json.encode(said).decode()}
        with atomic_file(Path(path)) as stream:
            trace.frame.write_parquet(stream, compression="zstd", compression_level=_LEVEL, metadata=metadata)
    except (
        pl.exceptions.PolarsError,
        UnicodeEncodeError,
    ) as error:  # for example a full disk, or text that is not Unicode
        raise OutputError(f"Cannot write {os.fspath(path)}: {error}.") from error


def is_our_parquet(path: str | os.PathLike[str]) -> bool:
    """Whether a Parquet file is a trace of ours, of any version."""
    try:
        return _KEY in pl.read_parquet_metadata(os.fspath(path))
    except (OSError, pl.exceptions.PolarsError):
        return False


def read_parquet(path: str | os.PathLike[str], fingerprint: str | None = None) -> tuple[TraceAbout, pl.LazyFrame]:
    """The trace in a Parquet file of ours; its events are read when they are needed.

    Raises `TraceFileError` if it is no such file, if it unpacks to more than any trace does, if a number in it is not
    in its range, or if it was made from a file with another ``fingerprint``. With one, it is a file of the user's own
    cache, which is not looked through.
    """
    name = os.fspath(path)
    if fingerprint is None:
        require_small(name)
    about = _read_header(name)
    if about is None or about.version != _VERSION:
        raise TraceFileError(
            f"Cannot read {name}: it is a Parquet file, but not a trace of this version of Kinetoscope. "
            "Convert the trace again: kinetoscope convert TRACE OUT.parquet"
        )
    if fingerprint is not None and about.fingerprint != fingerprint:
        raise TraceFileError(f"Cannot use {name}: the trace has changed since.")
    require_ranges(name, about.header)
    events = pl.scan_parquet(str(name), glob=False)
    if (why := _misfit(events, len(about.tracks))) is not None:
        raise TraceFileError(f"Cannot read {name}: its events are not those of a trace: {why}. Convert it again.")
    tracks, written = ([(pid, tid) for pid, tid in places] for places in (about.tracks, about.written))
    return TraceAbout(tracks, about.header, about.repairs, about.base_ns, about.has_clock, written), events


def _read_header(name: str) -> _Header | None:
    try:
        said = pl.read_parquet_metadata(str(name)).get(_KEY)
        return _READER.decode(said or "null")
    except msgspec.ValidationError as error:
        raise TraceFileError(f"Cannot read {name}: in its metadata, {told(error)}. Convert the trace again.") from error
    except (OSError, ValueError, RecursionError, pl.exceptions.PolarsError) as error:
        raise TraceFileError(f"Cannot read {name}: {error}. Convert the trace again.") from error


def _misfit(events: pl.LazyFrame, num_tracks: int) -> str | None:
    """What is wrong with the columns, or with the numbers of tracks; None for nothing."""
    try:
        schema = events.collect_schema()
        wrong = [name for name, dtype in event_schema().items() if schema.get(name) != dtype]
        if wrong:
            return f"the column {wrong[0]} is missing, or of another type"
        nulls = [pl.col(name).null_count() for name in _NEVER_NULL]
        far = [(~pl.col(name).is_between(-FURTHEST_NS, FURTHEST_NS)).sum() for name in _TIMES]
        counts = events.select(*nulls, *far, last=pl.col("track").max()).collect().row(0, named=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        return f"{error}".partition("\n")[0].rstrip(".")
    empty = next((name for name in _NEVER_NULL if counts[name]), None)
    if empty is not None:
        return f"{counted(counts[empty], 'row')} have nothing in the column {empty}"
    beyond = next((name for name in _TIMES if counts[name]), None)
    if beyond is not None:
        return f"{counted(counts[beyond], 'row')} have a number in the column {beyond} that is out of its range"
    if counts["last"] is not None and counts["last"] >= num_tracks:
        return f"there is a track {counts['last']:,}, but only {counted(num_tracks, 'track')} are named"
    return None


class CachePlace:
    """The place of the file ``name`` in the user's own cache folder. Raises OSError if there is no such folder."""

    def __init__(self, name: str) -> None:
        self._folder, self._name = RunFolder(_user_folder()), name

    @classmethod
    def of_trace(cls, name: str) -> "CachePlace":
        """The place of the trace in the file ``name``."""
        return cls(hashlib.sha256(os.fsencode(os.path.realpath(name))).hexdigest()[:32] + SUFFIX)

    def read(self) -> bytes:
        """The content of the file. Raises OSError if there is none."""
        content = self._folder.read(self._name)
        self.find()
        return content

    def write(self, content: bytes) -> None:
        """Writes the file, and makes room for it. Raises OSError if that is impossible."""
        with atomic_file(self.path) as stream:
            stream.write(content)
        self.make_room()

    def find(self) -> Path | None:
        """The cache file, if it exists and is not a link."""
        if not self._folder.is_file(self._name):
            return None
        with suppress(OSError):
            os.utime(self.path)  # marks it as just used
        return self.path

    @property
    def path(self) -> Path:
        """Where the cache file is, or is to be written."""
        return self._folder.path / self._name

    def make_room(self) -> None:
        """Deletes the files that were unused for longest, until there are at most `MOST_BYTES`. If all other files may
        be in use, deletes the new one."""
        kept = sorted(_files(self._folder.path), key=lambda file: file[0])
        too_much = sum(size_bytes for _, size_bytes, _ in kept) - MOST_BYTES
        old = [file for file in kept if file[0] < time.time() - _IN_USE_S]
        new = [file for file in kept if file[2].name == self._name]
        for _, size_bytes, path in [*old, *new]:
            if too_much > 0:
                path.unlink(missing_ok=True)
                too_much -= size_bytes


def _user_folder() -> Path:
    """The user's cache folder, made if needed and readable only by the user. Raises OSError if that is impossible."""
    given = Path(os.environ.get("XDG_CACHE_HOME") or "")
    folder = (given if given.is_absolute() else Path(os.path.expanduser("~"), ".cache")) / "kinetoscope"
    if not folder.is_absolute():
        raise FileNotFoundError("There is no home folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user.")
    if status.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def _files(folder: Path) -> list[tuple[float, int, Path]]:
    """Of each file in the user's cache: the time of last use, the size, and the path."""
    found = []
    for path in folder.iterdir():
        if not path.name.endswith((SUFFIX, REPORT_SUFFIX)):
            continue
        with suppress(OSError):  # another process may delete it too
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    return found
