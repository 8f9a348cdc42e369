"""Upload of a rank's queue, file by file, with a check of each file in the store."""

import base64
import hashlib
import heapq
import os
import random
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.core.paths.remote_url import check_url, mask_credentials, parse_url
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.core.text.wording import format_count, sanitize_sentence
from kinetoscope.errors import KinetoscopeError, UploadError
from kinetoscope.uploads.upload_queue import ConfirmedUpload, QueuedUpload, build_queue_name, read_queue

# s3fs sends files from 100 MiB in parts of 50 MiB; then S3's ETag is the MD5 of the parts' MD5s.
_PART_BYTES = 50 << 20
_READ_BYTES = 1 << 20
_TIMEOUTS = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 1}}
_PROTOCOLS_WITH_FOLDERS = {"file", "local", "ftp", "sftp", "ssh", "hdfs", "webhdfs", "smb", "memory"}

MIN_RETRY_DELAY_S, MAX_RETRY_DELAY_S = 0.5, 30.0
BACKGROUND_RETRY_S = 600.0
# Errors that a retry rarely fixes: no access, no such bucket, no library, an impossible name.
_PERMANENT_ERRORS = (PermissionError, FileNotFoundError, ImportError, ValueError)
_MAX_PERMANENT_FAILURES = 3
_MAX_NAMED = 20
_PERMANENT_ERROR_NAMES = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "DefaultCredentialsError")


@dataclass(frozen=True, slots=True)
class AllowedUploads:
    """Uploads of a queue that are allowed, since its entries are untrusted.

    These go to a URL below one of ``urls`` (None: to any URL), and are of files in the run folder or in ``folders``.
    """

    urls: Collection[str] | None = None
    folders: Collection[Path] = ()

    def explain_refusal(self, upload: QueuedUpload) -> str:
        """Return a sentence on why an upload is not allowed; "" if it is."""
        try:
            upload.locate(self.folders)
            locate = parse_url(upload.upload.url, "url")
        except KinetoscopeError as error:
            return str(error)
        if self.urls is None or any(locate.is_below(parse_url(url, "--to")) for url in self.urls):
            return ""
        return f"It is not below {' or '.join(self.urls)}."


@dataclass(slots=True)
class UploadReport:
    """Result for one rank's queue. ``failed`` pairs each failed upload with the reason."""

    rank: int
    confirmed: list[ConfirmedUpload] = field(default_factory=list)
    failed: list[tuple[QueuedUpload, str]] = field(default_factory=list)
    refused: list[tuple[QueuedUpload, str]] = field(default_factory=list)
    """Uploads that are not allowed, each with the reason."""
    is_busy: bool = False
    """Another process is uploading this queue, so nothing was done here."""


def describe_failures(failures: list[tuple[QueuedUpload, str]]) -> str:
    """Return lines on uploads that failed, each with its reason."""
    lines = [f"Not uploaded, and still there: {format_count(len(failures), 'file')}."]
    lines += [
        f"  {format_entry(waiting.upload.path)} -> {format_entry(waiting.upload.url)}: {format_entry(reason)}"
        for waiting, reason in failures[:_MAX_NAMED]
    ]
    if len(failures) > _MAX_NAMED:
        lines.append(f"  and {len(failures) - _MAX_NAMED} more")
    return "\n".join(lines)


def format_entry(text: str) -> str:
    """Return a path or URL of the queue, safe to print."""
    return sanitize_sentence(mask_credentials(text))


@dataclass(order=True, slots=True)
class _PendingUpload:
    """An upload to try at a time, with its failures so far."""

    at_s: float
    locate: int
    upload: QueuedUpload = field(compare=False)
    num_failed: int = field(compare=False, default=0)
    reason: str = field(compare=False, default="")


def drain_queue(
    run_folder: Path,
    rank: int,
    *,
    retry_for_s: float,
    deferred: bool = False,
    allowed: AllowedUploads | None = None,
) -> UploadReport:
    """Upload the queue of ``rank``, including files that are added meanwhile; if given, only ``allowed`` ones.

    A failed upload is retried after delays that double from half a second to half a minute, each shortened at random so
    that ranks do not retry at the same time. Without a success for ``retry_for_s`` seconds, all are given up.
    """
    report = UploadReport(rank)
    with _lock_queue(run_folder, rank) as has_lock:
        report.is_busy = not has_lock
        if has_lock:
            _QueueDrain(run_folder, rank, retry_for_s, deferred, allowed or AllowedUploads(), report).run()
    return report


class _QueueDrain:
    """Drain of one rank's queue."""

    def __init__(
        self,
        run_folder: Path,
        rank: int,
        retry_for_s: float,
        deferred: bool,
        allowed: AllowedUploads,
        report: UploadReport,
    ) -> None:
        self._read = lambda: read_queue(run_folder, rank, deferred=deferred)
        self._retry_for_s = retry_for_s
        self._allowed = allowed
        self._report = report
        self._pending: list[_PendingUpload] = []
        self._seen: set[Path] = set()
        self._last_success = time.monotonic()

    def run(self) -> None:
        """Try all uploads until all are done, or none has succeeded for too long."""
        self._read_new()
        while self._pending:
            attempt = heapq.heappop(self._pending)
            if not self._wait_until(attempt.at_s):
                self._report.failed += [
                    (refused.upload, refused.reason) for refused in (attempt, *self._pending) if refused.reason
                ]
                return
            if attempt.upload.is_waiting:
                self._upload_once(attempt)
            self._read_new()

    def _read_new(self) -> None:
        """Add new entries of the queue."""
        for upload in self._read():
            if upload.entry not in self._seen:
                self._seen.add(upload.entry)
                if reason := self._allowed.explain_refusal(upload):
                    self._report.refused.append((upload, reason))
                    continue
                heapq.heappush(self._pending, _PendingUpload(0.0, len(self._seen), upload))

    def _wait_until(self, at_s: float) -> bool:
        """Wait; return False if nothing will have succeeded for too long by then."""
        if at_s > self._last_success + self._retry_for_s:
            return False
        time.sleep(max(0.0, at_s - time.monotonic()))
        return True

    def _upload_once(self, attempt: _PendingUpload) -> None:
        """Try an upload, and confirm it."""
        try:
            confirmed = upload_file(attempt.upload, attempt.num_failed + 1, self._allowed.folders)
        except Exception as error:  # libraries of stores raise arbitrary exceptions
            self._handle_failure(attempt, error)
        else:
            self._last_success = time.monotonic()
            self._report.confirmed.append(confirmed)
            if attempt.upload.confirm(confirmed):
                folder, name = attempt.upload.locate(self._allowed.folders)
                folder.delete(name)

    def _handle_failure(self, attempt: _PendingUpload, error: Exception) -> None:
        """Schedule a retry, or give up after permanent errors."""
        reason = mask_credentials(f"{type(error).__name__}: {error}".strip())
        is_permanent = isinstance(error, _PERMANENT_ERRORS) or type(error).__name__ in _PERMANENT_ERROR_NAMES
        if is_permanent and attempt.num_failed + 1 >= _MAX_PERMANENT_FAILURES:
            self._report.failed.append((attempt.upload, reason))
            return
        pause = min(MAX_RETRY_DELAY_S, MIN_RETRY_DELAY_S * 2**attempt.num_failed) * random.uniform(0.5, 1.0)
        again = _PendingUpload(time.monotonic() + pause, attempt.locate, attempt.upload, attempt.num_failed + 1, reason)
        heapq.heappush(self._pending, again)


@contextmanager
def _lock_queue(run_folder: Path, rank: int) -> Iterator[bool]:
    """Yield whether this process has locked the queue; no other process uploads it meanwhile."""
    run = RunFolder(run_folder)
    import fcntl  # present on every system with run folders

    run.make_folder(build_queue_name(rank))
    with run.open(f"{build_queue_name(rank)}/lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


@dataclass(frozen=True, slots=True)
class _Digest:
    """Size and checksums of a file, as stores report them."""

    size_bytes: int
    md5: str
    etag_of_parts: str


def upload_file(upload: QueuedUpload, num_tries: int = 1, other_folders: Collection[Path] = ()) -> ConfirmedUpload:
    """Upload a file, and check that the store has it with the same size and checksum.

    The file must be in the run folder or in one of ``other_folders``. The store's library may raise any other
    exception.

    Raises:
        UnsafePathError: the file is in another folder.
        UploadError: the store has other content afterwards, or the file changed meanwhile.
        FileNotFoundError: the file is gone.
        SettingsError: the URL is invalid.
    """
    check_url(upload.upload.url, "url")
    folder, name = upload.locate(other_folders)
    before = _stat_version(folder, name)
    digest = _compute_digest(folder, name)
    store, path = _open_store(upload.upload.url)
    try:
        _copy_to_store(store, folder.path / name, path)
        _verify(store, path, digest)
    except BaseException:
        if num_tries % 2 == 0:
            store.clear_instance_cache()  # so that every second retry connects and logs in anew
        raise
    if _stat_version(folder, name) != before:
        raise UploadError(f"{folder.path / name} changed while it was uploaded.")
    return ConfirmedUpload(upload.upload.path, upload.upload.url, digest.size_bytes, digest.md5, num_tries)


def _stat_version(folder: RunFolder, name: str) -> tuple[int, int, int]:
    """Return inode, time and size of a file, which differ after a change."""
    with folder.open(name) as stream:
        status = os.fstat(stream.fileno())
    return status.st_ino, status.st_mtime_ns, status.st_size


def _compute_digest(folder: RunFolder, name: str) -> _Digest:
    """Return size and checksums of a file."""
    whole, parts, part = hashlib.md5(usedforsecurity=False), [], hashlib.md5(usedforsecurity=False)
    size_bytes = 0
    with folder.open(name) as stream:
        while piece := stream.read(_READ_BYTES):
            whole.update(piece)
            part.update(piece)
            size_bytes += len(piece)
            if size_bytes % _PART_BYTES == 0:
                parts.append(part.digest())
                part = hashlib.md5(usedforsecurity=False)
    if size_bytes % _PART_BYTES:
        parts.append(part.digest())
    of_parts = hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
    return _Digest(size_bytes, whole.hexdigest(), f"{of_parts}-{len(parts)}")


def _open_store(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL and the path in it; one with the same settings is reused.

    Connecting to S3 takes 100 ms of CPU time, as much as 40 small files.
    """
    import fsspec
    from fsspec.config import conf

    scheme = url.partition("://")[0]
    options: dict[str, Any] = {"use_listings_cache": False}
    if scheme in ("s3", "s3a"):
        user_options = conf.get("s3", {}).get("config_kwargs", {})
        options["config_kwargs"] = {**_TIMEOUTS, **user_options}
    return fsspec.url_to_fs(url, **options)


def _copy_to_store(store: Any, file: Path, path: str) -> None:
    """Copy the file into the store, where it appears only when complete."""
    protocols = {store.protocol} if isinstance(store.protocol, str) else set(store.protocol)
    if "file" in protocols:
        with atomic_file(Path(path)) as target, file.open("rb") as source:
            while piece := source.read(_READ_BYTES):
                target.write(piece)
        return
    if protocols & _PROTOCOLS_WITH_FOLDERS:
        store.makedirs(os.path.dirname(path), exist_ok=True)
    store.put_file(str(file), path)


def _verify(store: Any, path: str, digest: _Digest) -> None:
    """Raise `UploadError` unless the store has the file with its size and checksum."""
    store.invalidate_cache()
    try:
        info = store.info(path)
    except FileNotFoundError:
        raise UploadError("The store accepted the file, but does not have it.") from None
    if info.get("size") != digest.size_bytes:
        raise UploadError(f"The store has {info.get('size')} bytes of {digest.size_bytes}.")
    if (
        _read_store_checksum(info) not in (digest.md5, digest.etag_of_parts)
        and _compute_store_md5(store, path) != digest.md5
    ):
        raise UploadError("The store has a file of the right size, but with another checksum.")


def _read_store_checksum(info: dict[str, Any]) -> str:
    """Return the checksum that the store computed: S3's ETag or Google's md5Hash. Azure's comes from the client."""
    if md5 := info.get("md5Hash"):
        return base64.b64decode(md5).hex()
    return str(info.get("ETag") or "").strip('"')


def _compute_store_md5(store: Any, path: str) -> str:
    """Return the checksum of the content read back, for stores that report none, or S3 with customer keys."""
    md5 = hashlib.md5(usedforsecurity=False)
    with store.open(path, "rb") as stream:
        while piece := stream.read(_READ_BYTES):
            md5.update(piece)
    return md5.hexdigest()
