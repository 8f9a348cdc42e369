"""training: which rank of the run this process is. Reads torch.distributed or the environment; initialises nothing."""

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kinetoscope.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place in the run: ``rank`` of ``world_size``, ``local_rank`` of ``local_world_size``."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    node_rank: int = 0

    @property
    def num_nodes(self) -> int:
        return max(1, self.world_size // self.local_world_size)


def current_ranks(environment: Mapping[str, str] = os.environ) -> Ranks:
    """This process's ranks: from torch.distributed if it is initialised, else from torchrun's environment variables,
    else those of a world of one.

    Raises `SettingsError` when a variable is set but is not a number.
    """
    rank, world_size = _from_torch() or (_read(environment, "RANK", 0), _read(environment, "WORLD_SIZE", 1))
    local_world_size = _read(environment, "LOCAL_WORLD_SIZE", world_size)
    local_rank = _read(environment, "LOCAL_RANK", rank % local_world_size)
    node_rank = _read(environment, "GROUP_RANK", _read(environment, "NODE_RANK", rank // local_world_size))
    return Ranks(rank, local_rank, world_size, local_world_size, node_rank)


def run_name_all_ranks_agree_on(ranks: Ranks, now: str, environment: Mapping[str, str] = os.environ) -> str:
    """A name for the run that every rank arrives at without asking another.

    A launcher's run id where there is one; ``now`` in a world of one; on a single node its name, and the port where
    there is one. Another run may arrive at the same name.

    Raises `SettingsError` where ranks of several nodes have nothing in common to go by.
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
    """``torch.distributed`` if its process group is initialised, else None. Imports nothing."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    return distributed if distributed and distributed.is_available() and distributed.is_initialized() else None


def _from_torch() -> tuple[int, int] | None:
    distributed = torch_distributed()
    return (distributed.get_rank(), distributed.get_world_size()) if distributed else None


def _read(environment: Mapping[str, str], variable: str, default: int) -> int:
    text = environment.get(variable)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"The environment variable {variable} should be a number, but is {text!r}.") from None
