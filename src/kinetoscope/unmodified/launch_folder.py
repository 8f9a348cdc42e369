"""The folder of a run, where one command or process may train several times."""

import contextlib
import itertools
import os
import socket
import time
from pathlib import Path

from kinetoscope.recording.trace_folder import is_used
from kinetoscope.training.ranks import Ranks, launch_name, restart_count

_CLAIM = ".launch"
_MOST_RUNS = 1000
_LONGEST_CLAIM_S = 1.0


def choose_folder(out: str, ranks: Ranks) -> str:
    """``out`` for the first training of a command, and a folder in it for each other one: ``out/2`` and so on. All
    ranks of a launch, and its restarts, get the same. A launch may have the name of one that is over."""
    if "{time}" in out:
        return out
    launch = _launch(ranks)
    for number in itertools.count(1):
        folder = Path(out) if number == 1 else Path(out) / str(number)
        is_ours = _claims(folder, launch) and (restart_count() > 0 or not is_used(folder, ranks))
        if is_ours or number == _MOST_RUNS:
            return str(folder)
    raise AssertionError


def _launch(ranks: Ranks) -> str:
    """A name that all ranks of a launch share, and no other launch has."""
    is_named = ranks.world_size > 1 and "MASTER_PORT" in os.environ  # also where the first rank starts the others
    if is_named or "RANK" in os.environ or "SLURM_PROCID" in os.environ:
        return launch_name()
    return f"{socket.gethostname()}-{os.getppid() if ranks.world_size > 1 else os.getpid()}"


def _claims(folder: Path, launch: str) -> bool:
    """Whether the folder is this launch's. A second name of a file is made at once, with its text, and only once."""
    folder.mkdir(parents=True, exist_ok=True)
    claim = folder / _CLAIM
    own = folder / f"{_CLAIM}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        own.write_text(launch)
        try:
            os.link(own, claim)
        except FileExistsError:
            pass
        except OSError:  # a file system without second names
            with contextlib.suppress(FileExistsError), claim.open("x") as file:
                file.write(launch)
    finally:
        own.unlink(missing_ok=True)
    return _text_of(claim) == launch


def _text_of(claim: Path) -> str:
    """What is in it, once its writer has got so far."""
    deadline = time.monotonic() + _LONGEST_CLAIM_S
    while not (text := claim.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return text
