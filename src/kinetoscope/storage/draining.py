"""storage: the queue's other end. Waiting uploads flow in; confirmed ones, and reasons for the rest, flow out."""

import heapq
import random
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kinetoscope.errors import KinetoscopeError
from kinetoscope.formats.upload_queue import ConfirmedUpload, WaitingUpload, queue_name, read_queue
from kinetoscope.storage.redaction import without_credentials
from kinetoscope.storage.transfer import transfer
from kinetoscope.training.remote_url import parse_url
from kinetoscope.training.run_folder import RunFolder

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
RETRY_BESIDE_TRAINING_FOR_S = 600.0
# Waiting hardly changes anything here: no access, no such bucket, no library, a name that no store can have.
_LIKELY_FINAL = (PermissionError, FileNotFoundError, ImportError, ValueError)
_MOST_FINAL_FAILURES = 3
_FINAL_NAMES = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "DefaultCredentialsError")


@dataclass(frozen=True, slots=True)
class AllowedUploads:
    """What of a queue may be uploaded, whoever wrote its entries: to a URL below one of ``urls`` (None: to any), and of
    files outside of the run's folder those in ``folders``."""

    urls: Collection[str] | None = None
    folders: Collection[Path] = ()

    def reason_against(self, upload: WaitingUpload) -> str:
        """Why an upload is left, as a sentence; "" if it is allowed."""
        try:
            upload.place(self.folders)
            place = parse_url(upload.upload.url, "url")
        except KinetoscopeError as error:
            return str(error)
        if self.urls is None or any(place.is_below(parse_url(url, "--to")) for url in self.urls):
            return ""
        return f"It is not below {' or '.join(self.urls)}."


@dataclass(slots=True)
class UploadReport:
    """What became of one rank's queue. ``failed`` pairs each upload that is left with the reason."""

    rank: int
    confirmed: list[ConfirmedUpload] = field(default_factory=list)
    failed: list[tuple[WaitingUpload, str]] = field(default_factory=list)
    left: list[tuple[WaitingUpload, str]] = field(default_factory=list)
    """What may not be uploaded: it goes somewhere else, or is somewhere else; with the reason."""
    is_busy: bool = False
    """Another process is uploading this queue; it was left to that one."""


@dataclass(order=True, slots=True)
class _Try:
    at_s: float
    place: int
    upload: WaitingUpload = field(compare=False)
    num_failed: int = field(compare=False, default=0)
    reason: str = field(compare=False, default="")


def upload_waiting(
    run_folder: Path,
    rank: int,
    *,
    retry_for_s: float,
    left_aside: bool = False,
    allowed: AllowedUploads | None = None,
) -> UploadReport:
    """Uploads what waits in the queue of ``rank``, also what is added meanwhile; only what is ``allowed``, if given.

    What fails is tried again, after pauses that double from half a second to half a minute (each shortened by chance,
    so that ranks do not return together), and given up when nothing at all has succeeded for ``retry_for_s`` seconds.
    """
    report = UploadReport(rank)
    with _only_here(run_folder, rank) as is_ours:
        report.is_busy = not is_ours
        if is_ours:
            _Draining(run_folder, rank, retry_for_s, left_aside, allowed or AllowedUploads(), report).run()
    return report


class _Draining:
    def __init__(
        self,
        run_folder: Path,
        rank: int,
        retry_for_s: float,
        left_aside: bool,
        allowed: AllowedUploads,
        report: UploadReport,
    ) -> None:
        self._read = lambda: read_queue(run_folder, rank, left_aside=left_aside)
        self._retry_for_s = retry_for_s
        self._allowed = allowed
        self._report = report
        self._tries: list[_Try] = []
        self._known: set[Path] = set()
        self._last_success = time.monotonic()

    def run(self) -> None:
        """Tries every upload, again where it fails, until all are done, or none has succeeded for too long."""
        self._look_for_more()
        while self._tries:
            attempt = heapq.heappop(self._tries)
            if not self._wait_until(attempt.at_s):
                self._report.failed += [(it.upload, it.reason) for it in (attempt, *self._tries) if it.reason]
                return
            if attempt.upload.is_waiting:
                self._try(attempt)
            self._look_for_more()

    def _look_for_more(self) -> None:
        for upload in self._read():
            if upload.entry not in self._known:
                self._known.add(upload.entry)
                if reason := self._allowed.reason_against(upload):
                    self._report.left.append((upload, reason))
                    continue
                heapq.heappush(self._tries, _Try(0.0, len(self._known), upload))

    def _wait_until(self, at_s: float) -> bool:
        """Waits; False if by then nothing has succeeded for too long."""
        if at_s > self._last_success + self._retry_for_s:
            return False
        time.sleep(max(0.0, at_s - time.monotonic()))
        return True

    def _try(self, attempt: _Try) -> None:
        try:
            confirmed = transfer(attempt.upload, attempt.num_failed + 1, self._allowed.folders)
        except Exception as error:  # of whatever library the store has: the reason is kept, and the next one comes
            self._failed(attempt, error)
        else:
            self._last_success = time.monotonic()
            self._report.confirmed.append(confirmed)
            if attempt.upload.confirm(confirmed):
                folder, name = attempt.upload.place(self._allowed.folders)
                folder.delete(name)

    def _failed(self, attempt: _Try, error: Exception) -> None:
        reason = without_credentials(f"{type(error).__name__}: {error}".strip())
        is_final = isinstance(error, _LIKELY_FINAL) or type(error).__name__ in _FINAL_NAMES
        if is_final and attempt.num_failed + 1 >= _MOST_FINAL_FAILURES:
            self._report.failed.append((attempt.upload, reason))
            return
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**attempt.num_failed) * random.uniform(0.5, 1.0)
        again = _Try(time.monotonic() + pause, attempt.place, attempt.upload, attempt.num_failed + 1, reason)
        heapq.heappush(self._tries, again)


@contextmanager
def _only_here(run_folder: Path, rank: int) -> Iterator[bool]:
    """Whether this process is the only one that uploads the queue; it stays so within the block, and no longer."""
    run = RunFolder(run_folder)
    import fcntl  # which is there where there are run folders

    run.make_folder(queue_name(rank))
    with run.open(f"{queue_name(rank)}/lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
