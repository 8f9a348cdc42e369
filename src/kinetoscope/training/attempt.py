"""training: attempts. A job may be restarted into the same folders; each attempt keeps its files apart."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kinetoscope.training.ranks import Ranks


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a run. ``run_id`` is the same on all ranks of a node; ``restart`` counts from 0.

    ``start`` is a name that no other start of any process has: in containers every attempt has the same pid.
    """

    run_id: str
    restart: int
    pid: int
    start: str = ""

    @property
    def name(self) -> str:
        """What all ranks of this attempt share."""
        return f"{self.run_id}-{self.restart}"

    def traces_folder(self, folder: Path) -> Path:
        """Where this attempt's traces go: ``folder`` itself, or ``attempt{n}`` in it after a restart."""
        return folder / f"attempt{self.restart}" if self.restart else folder

    def live_folder(self, run_folder: Path) -> Path:
        """Where this process keeps what is not yet saved."""
        return run_folder / "live" / self.start


def current_attempt(ranks: Ranks, environment: Mapping[str, str] = os.environ) -> Attempt:
    """The attempt this process belongs to, from the launcher's environment variables."""
    restart = int(environment.get("TORCHELASTIC_RESTART_COUNT") or environment.get("SLURM_RESTART_COUNT") or 0)
    return Attempt(_run_id(ranks, environment), restart, os.getpid(), _new_start())


def _new_start() -> str:
    """The moment, the pid and chance; sorted by name, the starts of a run are in their order."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}-{os.urandom(4).hex()}"


def _run_id(ranks: Ranks, environment: Mapping[str, str]) -> str:
    """An id that this run's processes share and that another run in the same folder does not.

    torchrun calls a run "none" unless told otherwise, so on a single node the launcher's pid stands beside it.
    """
    if ranks.world_size == 1:
        return f"pid{os.getpid()}"
    parts = [environment.get("TORCHELASTIC_RUN_ID", ""), environment.get("SLURM_JOB_ID", "")]
    parts += [environment.get("MASTER_PORT", "")]
    if ranks.num_nodes == 1:
        parts.append(str(os.getppid()))
    return "-".join(part.replace("/", "_") for part in parts if part and part != "none") or "run"


def is_process_alive(pid: int) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
