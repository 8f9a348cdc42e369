"""Rank of this process, and the restart attempt it belongs to; initialises nothing."""

import hashlib
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from kinetoscope.core.clock.proc import read_boot_id
from kinetoscope.core.paths.attempt_folders import attempt_folder
from kinetoscope.errors import SettingsError

# The variables that launchers set in all processes of a job: torchrun, Slurm, MPI, and any that starts torch's ranks.
_LAUNCHER_VARIABLES = (
    "TORCHELASTIC_RUN_ID",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "MASTER_ADDR",
    "MASTER_PORT",
)

_COUNTS = ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
_NO_LOCAL_RANK = "-1"
"""``LOCAL_RANK`` without a launcher, as scripts set it that may run with or without one."""

Number = Annotated[int, Meta(ge=0, lt=2**31)]
"""A rank, a pid, or how many there are of something that people count."""
Positive = Annotated[int, Meta(ge=1, lt=2**31)]
Start = Annotated[str, Meta(pattern=r"^[^/\x00-\x1f\x7f-\x9f]*\Z", max_length=128)]
"""`Attempt.start`: files are called after it."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """A process's place in the job: ``rank`` of ``world_size``, ``local_rank`` of ``local_world_size``.

    Files store it with these field names, and so `Attempt`.
    """

    rank: Number = 0
    local_rank: Number = 0
    world_size: Positive = 1
    local_world_size: Positive = 1
    node_rank: Number = 0

    @property
    def num_nodes(self) -> int:
        """The number of nodes of the job."""
        return max(1, self.world_size // self.local_world_size)

    @property
    def header_fields(self) -> dict[str, Any]:
        """The ranks in the form of Kineto's headers of traces."""
        return {"distributedInfo": {"rank": self.rank, "world_size": self.world_size}}


def detect_ranks(environment: Mapping[str, str] = os.environ) -> Ranks:
    """Return this process's ranks.

    They are from torch.distributed if it is initialised, else from torchrun's environment variables, else from those of
    a Slurm step with several tasks, else those of a single process.

    Raises `SettingsError` when a variable is no number, or not a possible one.
    """
    if "RANK" not in environment and _read(environment, "SLURM_STEP_NUM_TASKS", 1, is_empty_unset=True) > 1:
        environment = _translate_slurm(environment)
    rank, world_size = _from_torch() or (_read(environment, "RANK", 0), _read(environment, "WORLD_SIZE", 1))
    local_world_size = _read(environment, "LOCAL_WORLD_SIZE", world_size)
    local_rank = rank % local_world_size
    if environment.get("LOCAL_RANK") != _NO_LOCAL_RANK:
        local_rank = _read(environment, "LOCAL_RANK", local_rank)
    node_rank = _read(environment, "GROUP_RANK", _read(environment, "NODE_RANK", rank // local_world_size))
    return Ranks(rank, local_rank, world_size, local_world_size, node_rank)


_SLURM_VARIABLES = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_STEP_NUM_TASKS", "LOCAL_RANK": "SLURM_LOCALID"}
_SLURM_VARIABLES |= {"NODE_RANK": "SLURM_NODEID"}


def _translate_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the ranks of a task of srun under torchrun's names.

    In a script of sbatch, which is no step of several tasks, the variables of the whole job do not describe the
    process.
    """
    ranks = {
        name: environment[slurm_name] for name, slurm_name in _SLURM_VARIABLES.items() if environment.get(slurm_name)
    }
    node = ranks.get("NODE_RANK", "")
    counts = _parse_tasks_per_node(environment.get("SLURM_STEP_TASKS_PER_NODE", ""))
    if node.isdecimal() and int(node) < len(counts):
        ranks["LOCAL_WORLD_SIZE"] = str(counts[int(node)])
    return {**environment, **ranks}


def _parse_tasks_per_node(text: str) -> list[int]:
    """Return the number of tasks of each node in a text such as ``4(x2),3``; empty for another text."""
    if not re.fullmatch(r"\d{1,6}(\(x\d{1,6}\))?(,\d{1,6}(\(x\d{1,6}\))?)*", text, re.ASCII):
        return []
    pairs = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(count) for count, times in pairs for _ in range(int(times or 1))]


def derive_run_name(ranks: Ranks, now: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a name for the run that every rank derives without communication.

    It is the launcher's run id if there is one, or ``now`` for a single process; on a single node, the host's name and
    the port, if any. Another run may get the same name.

    Raises `SettingsError` if ranks on several nodes have nothing in common.
    """
    for variables in (("TORCHELASTIC_RUN_ID",), ("SLURM_JOB_ID", "SLURM_STEP_ID"), ("PMIX_NAMESPACE",)):
        values = [environment.get(variable, "none") for variable in variables]
        if values[0] != "none":
            return "-".join(value.replace("/", "-") for value in values if value != "none")
    if ranks.world_size == 1:
        return now
    if ranks.num_nodes == 1:
        return "-".join(filter(None, (socket.gethostname(), environment.get("MASTER_PORT"))))
    raise SettingsError(
        "Ranks on several nodes cannot agree on a run name by themselves. "
        "Pass run_name=..., or start the job with an id (torchrun --rdzv-id)."
    )


def torch_distributed() -> Any:
    """Return ``torch.distributed`` if its process group is initialised, else None; import nothing."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    return distributed if distributed and distributed.is_available() and distributed.is_initialized() else None


def _from_torch() -> tuple[int, int] | None:
    distributed = torch_distributed()
    return (distributed.get_rank(), distributed.get_world_size()) if distributed else None


def _read(environment: Mapping[str, str], variable: str, default: int, *, is_empty_unset: bool = False) -> int:
    text = environment.get(variable)
    if text is None or (is_empty_unset and not text):
        return default
    try:
        number = int(text)
    except ValueError:
        raise SettingsError(f"The environment variable {variable} should be a number, but is {text!r}.") from None
    minimum = 1 if variable in _COUNTS else 0
    if not minimum <= number < 2**31:
        raise SettingsError(
            f"The environment variable {variable} should be a number from {minimum} on, but is {text!r}."
        )
    return number


@dataclass(frozen=True, slots=True)
class Attempt:
    """One restart attempt of a run; ``restart`` counts from 0.

    ``run_id`` is the same on all ranks of a node. ``start`` is unique to each start of each process; the pid is not,
    since in containers every attempt has the same. ``host`` is the name of the process's machine in files.
    """

    run_id: str
    restart: Number
    pid: Number
    start: Start = ""
    host: str = ""

    @property
    def name(self) -> str:
        """The name that all ranks of this attempt share; later attempts may reuse it with its ports and ids."""
        return f"{self.run_id}-{self.restart}"

    def traces_folder(self, folder: Path) -> Path:
        """Return the folder of this attempt's traces: ``folder``, or after a restart ``attempt{n}`` in it."""
        return attempt_folder(folder, self.restart)

    def spool_folder(self, run_folder: Path) -> Path:
        """Return the folder in which this process keeps unsaved data."""
        return run_folder / "live" / self.start


def detect_attempt(ranks: Ranks, environment: Mapping[str, str] = os.environ) -> Attempt:
    """Return the attempt this process belongs to, from the launcher's environment variables."""
    start = _new_start()
    run_id = launch_name(environment) if ranks.world_size > 1 or may_miss_restarts(environment) else start
    return Attempt(run_id, restart_count(environment), os.getpid(), start, socket.gethostname())


_PER_REQUEUE = 10_000
"""More than torchrun restarts one start of a job, so that each pair of counts has a number of its own."""


def restart_count(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of this attempt of the job: 0 at first, larger for a later one.

    It is the launcher's count of restarts: Slurm's of requeues, or torchrun's within one start of the job. Under both,
    torchrun counts from 0 again after each requeue, so a requeue counts as 10,000. Slurm's count is the same on all
    nodes. Of several nodes under torchrun, each counts only the restarts that a failure of its own ranks has caused:
    there the number is at least this one, and `TraceFolder.open` finds it.

    Raises `SettingsError` when a count is no number.
    """
    requeues = _read(environment, "SLURM_RESTART_COUNT", 0, is_empty_unset=True)
    if not environment.get("TORCHELASTIC_RESTART_COUNT"):
        return requeues
    return requeues * _PER_REQUEUE + _read(environment, "TORCHELASTIC_RESTART_COUNT", 0)


def may_miss_restarts(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether `restart_count` may be too low.

    torchrun also restarts ranks that have not failed, where another node's ranks have or a node has joined, and does
    not count that. Then it has a store of its own on a port of its own, which is in `launch_name` and in no other
    job's.
    """
    return environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def launch_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return a name that this job's processes share, even if a wrapper such as ``nsys`` starts each of them."""
    values = (environment.get(variable, "") for variable in _LAUNCHER_VARIABLES)
    return "-".join(value.replace("/", "_") for value in values if value not in ("", "none")) or "run"


def agree_on_attempt(store: Any, key: str, rank: int, start: str) -> str:
    """Return an id that all ranks share: the ``start`` of the rank that called first. Further calls give further ids.

    ``store`` is torch.distributed's. The call does not wait for other ranks; it raises what the store raises.
    """
    time = store.add(f"{key}{rank}", 1)
    agreed = store.compare_set(f"{key}of-{time}", "", start)
    return agreed.decode() if isinstance(agreed, bytes) else agreed


def _new_start() -> str:
    """Return a name made of the time, the pid and a random number; sorted names are in the order of starting."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}-{os.urandom(4).hex()}"


def is_process_alive(pid: int) -> bool:
    """Return whether a process with this pid runs on this machine."""
    if sys.platform == "win32":  # where signal 0 is Ctrl-C
        import psutil

        return psutil.pid_exists(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def pid_space() -> str:
    """Return an id of the space in which this process's pid is unique; "" where the system has none.

    It is an id of the boot and the time namespace, a dot, and one of the pid namespace, which differs between
    containers.
    """
    if not (boot := read_boot_id()):
        return ""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return ""
    with suppress(OSError):  # before Linux 5.6 there are none
        boot += f" {os.stat('/proc/self/ns/time').st_ino}"
    return f"{hashlib.sha256(boot.encode()).hexdigest()[:16]}.{namespace}"
