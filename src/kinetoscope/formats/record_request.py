"""Request of `kinetoscope record` to the ranks of a running job: numbers only, no path and no code.

Its file is made when the run begins, and overwritten in place: a network file system may take a minute to show a new
name.
"""

import hashlib
import os
import stat
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from kinetoscope.errors import SettingsError

NAME = "record.request"
"""Name of the request's file, in the folder `pulse` of the run."""

MAX_STEPS = 100
REQUEST_BYTES = 512
_MAGIC = b"KSRECORD"
_HEAD = struct.Struct("<8sI")
_FIELDS = struct.Struct("<8sIIqqI256s")
"""The magic; the number of the request; num_steps; the first step; the time of the request, in unix nanoseconds;
whether it is for all ranks; else the ranks as bits."""

_MAX_RANKS = 8 * 256
_CHECKED_BYTES = REQUEST_BYTES - 8
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


@dataclass(frozen=True)
class RecordRequest:
    """A request for ``num_steps`` steps from ``first_step`` on, of ``ranks``, or of all ranks.

    ``sequence`` is a different number, above 0, for each request to a run.
    """

    sequence: int
    num_steps: int
    first_step: int
    requested_unix_ns: int
    ranks: frozenset[int] | None = None

    def is_for(self, rank: int) -> bool:
        """Return whether the request is for this rank."""
        return self.ranks is None or rank in self.ranks

    def encoded(self) -> bytes:
        """Return the bytes of the file."""
        bits = bytearray(_MAX_RANKS // 8)
        for rank in self.ranks or ():
            bits[rank // 8] |= 1 << rank % 8
        numbers = self.sequence, self.num_steps, self.first_step, self.requested_unix_ns, int(self.ranks is None)
        text = _FIELDS.pack(_MAGIC, *numbers, bytes(bits)).ljust(_CHECKED_BYTES, b"\0")
        return text + _checksum(text)


def validate_ranks(ranks: Iterable[int]) -> frozenset[int]:
    """Return the ranks if a request can name them; raise `SettingsError` otherwise."""
    found = frozenset(ranks)
    if not found or min(found) < 0 or max(found) >= _MAX_RANKS:
        raise SettingsError(f"--ranks takes numbers from 0 to {_MAX_RANKS - 1}; leave it out to ask all ranks.")
    return found


def decode_request(content: bytes) -> RecordRequest | None:
    """Return the request in a file; None if there is no valid one."""
    if len(content) != REQUEST_BYTES or _checksum(content[:_CHECKED_BYTES]) != content[_CHECKED_BYTES:]:
        return None
    magic, sequence, num_steps, first_step, requested_unix_ns, is_for_all, bits = _FIELDS.unpack_from(content)
    is_possible = magic == _MAGIC and sequence and 1 <= num_steps <= MAX_STEPS and 0 <= first_step < 1 << 48
    if not is_possible:
        return None
    named = frozenset(rank for rank in range(_MAX_RANKS) if bits[rank // 8] >> rank % 8 & 1)
    return RecordRequest(sequence, num_steps, first_step, requested_unix_ns, None if is_for_all else named)


def read_request(path: bytes | str) -> RecordRequest | None:
    """Return the request in a file to which only this user can write; None for any other; never raise."""
    return decode_request(_read(path, REQUEST_BYTES))


def request_sequence(path: bytes | str) -> int:
    """Return the number of the request in such a file; 0 for none."""
    head = _read(path, _HEAD.size)
    magic, sequence = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 0)
    return sequence if magic == _MAGIC else 0


def make_request_file(folder: int) -> None:
    """Make the file, without a request, in an open folder, unless it exists. Raises OSError."""
    try:
        descriptor = os.open(NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=folder)
    except FileExistsError:
        return
    try:
        os.write(descriptor, bytes(REQUEST_BYTES))
    finally:
        os.close(descriptor)


def write_request(path: str, make: Callable[[RecordRequest | None], RecordRequest]) -> RecordRequest:
    """Overwrite the file in place with the request that ``make`` builds from the current one; return it.

    Two processes take turns. Raises OSError, FileNotFoundError if it is not the file of this user's run, and the errors
    of ``make``.
    """
    descriptor = os.open(path, os.O_RDWR | _FLAGS)
    try:
        if not _is_valid_file(os.fstat(descriptor)):
            raise FileNotFoundError(f"{path} is not a file that only you may write to.")
        with suppress(OSError, ImportError):  # some network file systems have no locks
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        request = make(decode_request(os.pread(descriptor, REQUEST_BYTES, 0)))
        os.pwrite(descriptor, request.encoded(), 0)
        os.fsync(descriptor)
        return request
    finally:
        os.close(descriptor)


def _read(path: bytes | str, count: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    except (OSError, ValueError):
        return b""
    try:
        return os.pread(descriptor, count, 0) if _is_valid_file(os.fstat(descriptor)) else b""
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _is_valid_file(found: os.stat_result) -> bool:
    is_private = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & _OTHERS_MAY_WRITE
    return stat.S_ISREG(found.st_mode) and is_private and found.st_size == REQUEST_BYTES


def _checksum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).digest()
