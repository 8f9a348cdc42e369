"""storage: remote names. A format and where the run uploads flow in; the place of one file flows out."""

from pathlib import Path
from typing import Any

from kinetoscope.formats.upload_queue import add_upload, path_in_queue, read_confirmed, read_queue
from kinetoscope.storage.uploads import UploadingRun, Uploads
from kinetoscope.training.file_names import FileNameFormat, UsedNames
from kinetoscope.training.ranks import Ranks
from kinetoscope.training.remote_url import check_url
from kinetoscope.training.timestamp import Moment


class RemoteName:
    """The remote name of one kind of file; ``text`` may use the variables of `FileNameFormat`, None uploads nothing.

    Raises `FileNameError` for an unknown variable, and `SettingsError` as `check_url` does.
    """

    def __init__(self, text: str | None, argument: str, *, has_timestamp: bool = True) -> None:
        self._format = FileNameFormat((text or "").lstrip("/"), argument, has_timestamp)
        if "://" in self._format.text:
            check_url(self._format.text, argument)
        self._uploads: Uploads | None = None
        self._used = UsedNames()

    @property
    def text(self) -> str:
        """The format; empty if nothing is uploaded."""
        return self._format.text

    @property
    def url(self) -> str:
        """The format of the URLs that files are uploaded to through the run's queue; empty if they are not."""
        return self._uploads.url_of(self._format.text) if self._uploads is not None else ""

    def add_suffix(self, suffix: str) -> None:
        """Ends the name in ``suffix``, unless it does so already."""
        if self._format.text and not self._format.text.endswith(suffix):
            self._format = FileNameFormat(self._format.text + suffix, self._format.argument)

    def open(self, run: UploadingRun, run_name: str, uploads: Uploads, *, shared: bool = False) -> None:
        """From now on files are uploaded, if there is a place for them to go to.

        Raises `FileNameError` if two ranks would upload to one name, unless it is ``shared`` by those of a node.
        """
        self._run_name, self._ranks, self._restart = run_name, run.ranks, run.attempt.restart
        if self._format.text and uploads.prepare(self._format.text, self._folder(uploads)):
            if not shared:
                self._format.check_ranks_differ(run.ranks)
            self._uploads = uploads

    def _folder(self, uploads: Uploads) -> str:
        """The URL below which all files of this name go in this run. Raises `SettingsError` if that is none."""
        url = uploads.url_of(self._format.fill_folder(self._run_name, self._ranks))
        if url:
            check_url(url, self._format.argument)
        return url

    def put(self, file: Path, timestamp: Moment | None = None) -> None:
        """Has ``file`` uploaded, under the name that belongs to ``timestamp``."""
        if self._uploads is not None:
            name = self._format.fill(self._run_name, self._ranks, timestamp)
            self._uploads.put(file, self._used.choose(_of_attempt(name, self._restart)))

    def put_shared(self, file: Path) -> None:
        """Has a node's own ``file`` uploaded, again if it was before; on nodes after the first one with the node in its
        name."""
        if self._uploads is not None:
            self._uploads.put(file, self._shared_name())

    @property
    def shared_url(self) -> str:
        """Where `put_shared` uploads to through the run's queue; empty if it does not."""
        return self._uploads.url_of(self._shared_name()) if self._uploads is not None else ""

    def _shared_name(self) -> str:
        return _of_attempt(name_on_node(self._format, self._run_name, self._ranks), self._restart)


def queue_recovered(run_folder: Path, url: str, file: Path, cycle: Any) -> None:
    """Puts a trace that was made after the end of its run into the queue, for `kinetoscope upload` to send, unless it
    is in there or was uploaded. ``url`` is the format its rank's traces have; ``cycle`` is what it was made of.
    Raises OSError if that cannot be written."""
    rank = cycle.ranks.rank
    waiting = (it.upload for it in read_queue(run_folder, rank, left_aside=True))
    before = [*read_confirmed(run_folder, rank), *waiting]
    if path_in_queue(run_folder, file) in {it.path for it in before}:
        return
    used = UsedNames(it.url for it in before)
    wanted = FileNameFormat(url).fill(cycle.run_name, cycle.ranks, cycle.timestamp)
    add_upload(run_folder, rank, file, used.choose(_of_attempt(wanted, cycle.attempt.restart)))


def name_on_node(name: FileNameFormat, run_name: str, ranks: Ranks) -> str:
    """A merged file's name; on nodes after the first one with the node in it, so that nodes sharing a disk differ."""
    filled = name.fill(run_name, ranks)
    if ranks.node_rank == 0 or "node_rank" in name.variables():
        return filled
    folder, slash, last = filled.rpartition("/")
    stem, dot, suffix = last.partition(".")
    return f"{folder}{slash}{stem}.node{ranks.node_rank}{dot}{suffix}"


def _of_attempt(name: str, restart: int) -> str:
    """After a restart in a folder of the attempt, as on disk: what the one before uploaded stays."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}attempt{restart}/{last}" if restart else name
