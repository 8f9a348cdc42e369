"""A trace as one Parquet file, and where the cache of such files is.

The file's metadata hold the tracks and the header, and what the trace was read from: if that has another size, another
time of change, or was read by another version, it is read again.

In a folder that Kinetoscope made, the cache is beside the trace. For other people's folders it is in the user's own
cache folder, which nobody else can read, and from which the files that were unused longest are deleted. Reports on runs
are always there.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kinetoscope.errors import OutputError, TraceFileError
from kinetoscope.table.events import TraceAbout, TraceEvents, event_schema, import_polars
from kinetoscope.training.run_folder import RunFolder
from kinetoscope.writing.atomic_file import atomic_file

if TYPE_CHECKING:
    import polars as pl

_VERSION = 3  # increased when the columns or their meaning change
_KEY = "kinetoscope"
_LEVEL = 1


Place = str | int | float | bool | None
FOLDER = ".kinetoscope_cache"
SUFFIX, REPORT_SUFFIX = ".parquet", ".report.json"
MOST_BYTES = 2_000_000_000
_IN_USE_S = 3600  # a trace may still read from a file that was used so recently
_MARK = ".manifest"


class _Header(msgspec.Struct):
    """The header of a Parquet file: everything about its trace except the events."""

    version: int
    fingerprint: str | None
    tracks: list[tuple[Place, Place]]
    header: dict[str, Any]
    repairs: list[str]
    base_ns: int
    has_clock: bool
    written: list[tuple[Place, Place]] = []


def write_parquet(trace: TraceEvents, path: str | os.PathLike[str], fingerprint: str | None = None) -> None:
    """Writes a complete trace, for `read_parquet`. The file appears when it is complete.

    Raises `OutputError` if it cannot be written.
    """
    about = trace.about
    said = _Header(
        _VERSION, fingerprint, about.tracks, about.header, about.repairs, about.base_ns, about.has_clock, about.written
    )
    pl = import_polars()
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
    pl = import_polars()
    try:
        return _KEY in pl.read_parquet_metadata(path)
    except (OSError, pl.exceptions.PolarsError):
        return False


def read_parquet(path: str | os.PathLike[str], fingerprint: str | None = None) -> "tuple[TraceAbout, pl.LazyFrame]":
    """The trace in a Parquet file of ours; its events are read when they are needed.

    Raises `TraceFileError` if it is no such file, or if it was made from a file with another ``fingerprint``.
    """
    pl = import_polars()
    try:
        said = pl.read_parquet_metadata(path).get(_KEY)
        about = msgspec.json.decode(said or "null", type=_Header | None)
    except (OSError, msgspec.MsgspecError, pl.exceptions.PolarsError) as error:
        raise TraceFileError(f"Cannot read {os.fspath(path)}: {error}.") from error
    if about is None or about.version != _VERSION:
        raise TraceFileError(
            f"Cannot read {os.fspath(path)}: it is a Parquet file, but not a trace of this version of Kinetoscope. "
            "Convert the trace again: kinetoscope convert TRACE OUT.parquet"
        )
    if fingerprint is not None and about.fingerprint != fingerprint:
        raise TraceFileError(f"Cannot use {os.fspath(path)}: the trace has changed since.")
    tracks = [(pid, tid) for pid, tid in about.tracks]
    events = pl.scan_parquet(path, glob=False)
    if not _fits(events, len(tracks)):
        raise TraceFileError(f"Cannot read {os.fspath(path)}: its events are not those of a trace. Convert it again.")
    return TraceAbout(
        tracks, about.header, about.repairs, about.base_ns, about.has_clock, list(map(tuple, about.written))
    ), events


def _fits(events: "pl.LazyFrame", num_tracks: int) -> bool:
    """Whether events have our columns, and only known tracks."""
    pl = import_polars()
    try:
        schema = events.collect_schema()
        if any(schema.get(name) != dtype for name, dtype in event_schema().items()):
            return False
        last = events.select(pl.col("track").max()).collect().item()
    except (OSError, pl.exceptions.PolarsError):
        return False
    return last is None or last < num_tracks


class CachePlace:
    """The place of the cache file for the trace ``name``. Raises OSError if there is none."""

    def __init__(self, name: str) -> None:
        beside = os.path.dirname(name) or "."
        self._is_own = not (_is_of_a_run(Path(beside)) and os.access(beside, os.W_OK))
        if self._is_own:
            self._folder = RunFolder(_user_folder())
            self._name = hashlib.sha256(os.fsencode(os.path.realpath(name))).hexdigest()[:32] + SUFFIX
        else:
            self._folder = RunFolder(beside)
            self._name = f"{FOLDER}/{os.path.basename(name)}{SUFFIX}"

    @classmethod
    def of_user(cls, name: str) -> "CachePlace":
        """The place of a file of this name in the user's own cache folder."""
        place = cls.__new__(cls)
        place._is_own, place._folder, place._name = True, RunFolder(_user_folder()), name
        return place

    def read(self) -> bytes:
        """The content of the file. Raises OSError if there is none."""
        content = self._folder.read(self._name)
        self.find()
        return content

    def write(self, content: bytes) -> None:
        """Writes the file, and makes room for it. Raises OSError if that is impossible."""
        with atomic_file(self.make()) as stream:
            stream.write(content)
        self.make_room()

    def find(self) -> Path | None:
        """The cache file, if it exists and is not a link."""
        if not self._folder.is_file(self._name):
            return None
        path = self._folder.path_of(self._name)
        if self._is_own:
            with suppress(OSError):
                os.utime(path)  # marks it as just used
        return path

    def make(self) -> Path:
        """Where to write the cache file; not behind a link."""
        if not self._is_own:
            self._folder.make_folder(FOLDER)
        return self._folder.path / self._name

    def make_room(self) -> None:
        """Deletes files from the user's cache, those unused for longest first, until it is small enough. If all other
        files may be in use, deletes the new one."""
        if not self._is_own:
            return
        kept = sorted(_files(self._folder.path), key=lambda file: file[0])
        too_much = sum(size_bytes for _, size_bytes, _ in kept) - MOST_BYTES
        old = [file for file in kept if file[0] < time.time() - _IN_USE_S]
        new = [file for file in kept if file[2].name == self._name]
        for _, size_bytes, path in [*old, *new]:
            if too_much > 0:
                path.unlink(missing_ok=True)
                too_much -= size_bytes


def _is_of_a_run(folder: Path) -> bool:
    """Whether Kinetoscope made the folder: then it, or the ``traces`` folder beside it, has a manifest."""
    return any(map(os.path.isdir, (folder / _MARK, Path(os.path.abspath(folder)).parent / "traces" / _MARK)))


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
