"""formats: what a live folder says of its run, in ``run.json``. `recover` needs it."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from kinetoscope.errors import TraceFileError

_RUN = "run.json"


class TraceRecipe(msgspec.Struct, frozen=True):
    """How a handler names its traces. ``folder`` is relative to the run's; ``merged`` is empty if nobody merges.

    ``in_pairs``: as `JSONTraceHandler.in_pairs` has it. ``remote`` is the format of the URLs to which its traces are
    uploaded, ``merged_remote`` that of the merged file; empty if they are not, or not through the run's queue.
    """

    folder: str
    filename: str
    merged: str
    in_pairs: bool = False
    remote: str = ""
    merged_remote: str = ""


class LiveRun(msgspec.Struct, frozen=True):
    """Whose live folder it is: a rank of an attempt of a run, as process ``pid`` on ``host``. See `Attempt`."""

    run_name: str
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    node_rank: int
    run_id: str
    restart: int
    pid: int
    host: str
    recipes: list[TraceRecipe]
    start: str = ""


def write_live_run(folder: Path, run: LiveRun) -> None:
    """Whole or not at all: a kill may come at any moment. Raises OSError if it cannot be written."""
    partial = folder / f"{_RUN}.partial"
    partial.write_bytes(msgspec.json.encode(run))
    partial.replace(folder / _RUN)


def is_live_folder(folder: Path) -> bool:
    """Whether a process keeps, or has left, in ``folder`` what it has not saved."""
    return (folder / _RUN).is_file()


def contributed_folder(folder: Path, cycle: int) -> Path:
    """Where, in a live folder, trace files lie that were contributed to an unsaved cycle."""
    return folder / "contributed" / str(cycle)


def contributed_files(folder: Path, cycle: int) -> list[Path]:
    """Those that are complete. Links are passed over, which may lead anywhere."""
    holder = contributed_folder(folder, cycle)
    if holder.is_symlink() or holder.parent.is_symlink() or not holder.is_dir():
        return []
    files = (path for path in sorted(holder.iterdir()) if not path.name.startswith("."))
    return [path for path in files if path.is_file() and not path.is_symlink()]


def live_folders(run_folder: Path) -> Iterator[Path]:
    """The live folders of a run's processes, also those that are elsewhere because the run's folder is on a network."""
    for path in sorted((run_folder / "live").glob("*")):
        folder = _folder_behind(path)
        if folder is not None and is_live_folder(folder):
            yield folder


def live_folder_of(run_folder: Path, start: str) -> Path | None:
    """The live folder of the process whose start has this name (`Attempt.start`); None if there is none."""
    for path in (run_folder / "live").glob("*"):
        if path.stem == start and (folder := _folder_behind(path)) is not None and is_live_folder(folder):
            return folder
    return None


def _folder_behind(path: Path) -> Path | None:
    """``path`` itself, or the folder elsewhere that it names; None if its process has deleted it meanwhile."""
    if path.suffix != ".elsewhere":
        return path
    with suppress(FileNotFoundError):
        return Path(path.read_text(encoding="utf-8").strip())
    return None


def read_live_run(folder: Path) -> LiveRun:
    """Raises `TraceFileError` if the folder does not say whose it is."""
    path = folder / _RUN
    try:
        return msgspec.json.decode(path.read_bytes(), type=LiveRun)
    except (OSError, msgspec.MsgspecError) as error:
        raise TraceFileError(f"Cannot read {path}: {error}. Is this the live folder of a Kinetoscope run?") from error
