"""training: attempts. A job may be restarted into the same folders; each attempt keeps its files apart."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinetoscope.training.ranks import Ranks

# What launchers give to all processes of a job: torchrun, Slurm and its steps, MPI, and whatever starts torch's ranks.
_SHARED = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "MASTER_ADDR", "MASTER_PORT")


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
        """What all ranks of this attempt share, and perhaps those of a later one: ports and run ids are used again."""
        return f"{self.run_id}-{self.restart}"

    def traces_folder(self, folder: Path) -> Path:
        """Where this attempt's traces go: ``folder`` itself, or ``attempt{n}`` in it after a restart."""
        return folder / f"attempt{self.restart}" if self.restart else folder

    def live_folder(self, run_folder: Path) -> Path:
        """Where this process keeps what is not yet saved."""
        return run_folder / "live" / self.start


def current_attempt(ranks: Ranks, environment: Mapping[str, str] = os.environ) -> Attempt:
    """The attempt this process belongs to, from the launcher's environment variables."""
    start = _new_start()
    run_id = launch_name(environment) if ranks.world_size > 1 else start
    return Attempt(run_id, restart_count(environment), os.getpid(), start)


def restart_count(environment: Mapping[str, str] = os.environ) -> int:
    """How often the launcher has started this job again."""
    return int(environment.get("TORCHELASTIC_RESTART_COUNT") or environment.get("SLURM_RESTART_COUNT") or 0)


def launch_name(environment: Mapping[str, str] = os.environ) -> str:
    """What this run's processes share, also where a wrapper such as ``timeout`` or ``nsys`` starts each of them."""
    values = (environment.get(variable, "") for variable in _SHARED)
    return "-".join(value.replace("/", "_") for value in values if value not in ("", "none")) or "run"


def agree_on_attempt(store: Any, key: str, rank: int, start: str) -> str:
    """An id for the ranks to share: the first one's ``start``. Asked for again, they get another one.

    ``store`` is torch.distributed's. Waits for no other rank; raises what the store raises.
    """
    time = store.add(f"{key}{rank}", 1)
    agreed = store.compare_set(f"{key}of-{time}", "", start)
    return agreed.decode() if isinstance(agreed, bytes) else agreed


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
