"""The process groups of a run, and what a collective is called where it appears."""

import itertools
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from trainsim.settings import Settings

_STORAGE = "(ncclDevKernelArgsStorage<4096ul>)"


class Collective(NamedTuple):
    """The names of one kind of collective: in args, of the operator, of the annotation, and of the kernel."""

    name: str
    operator: str
    annotation: str
    kernel: str
    has_larger_output: bool = False
    has_larger_input: bool = False


ALL_REDUCE = Collective(
    "allreduce", "c10d::allreduce_", "nccl:all_reduce", f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{_STORAGE}"
)
TWO_SHOT_OPERATOR = "symm_mem::two_shot_all_reduce_"
TWO_SHOT_KERNEL = (
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>(c10::BFloat16**, "
    "unsigned long, unsigned long, unsigned int**, unsigned long, unsigned long)"
)
"""PyTorch's all-reduce on symmetric memory."""

ALL_GATHER = Collective(
    "_allgather_base",
    "c10d::_allgather_base_",
    "nccl:_all_gather_base",
    f"ncclDevKernel_AllGather_RING_LL{_STORAGE}",
    has_larger_output=True,
)
REDUCE_SCATTER = Collective(
    "_reduce_scatter_base",
    "c10d::_reduce_scatter_base_",
    "nccl:_reduce_scatter_base",
    f"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL{_STORAGE}",
    has_larger_input=True,
)
ALL_TO_ALL = Collective("all_to_all", "c10d::alltoall_base_", "nccl:all_to_all", f"ncclDevKernel_SendRecv{_STORAGE}")
ALL_TO_ALL_OF_EXPERTS = ALL_TO_ALL._replace(name="all_to_allv")
"""Each rank sends as much to another one as its experts get."""
SEND = Collective("send", "c10d::send", "nccl:send", f"ncclDevKernel_SendRecv{_STORAGE}")
RECEIVE = Collective("recv", "c10d::recv_", "nccl:recv", f"ncclDevKernel_SendRecv{_STORAGE}")

POINT_TO_POINT = ("send", "recv")
ELEMENT_BYTES = 2
"""Messages are of bfloat16; gloo's, on the CPU, of float."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group."""

    name: str
    description: str
    ranks: tuple[int, ...]

    @property
    def stream(self) -> str:
        """Each group has a stream of its own."""
        return str(20 + 4 * int(self.name))

    def args(self, collective: Collective, rank: int, num_elements: int, sequence: int | None) -> str:
        """Return Kineto's description of a rank's part in a call, as the inside of a JSON object."""
        fields = self._args(collective, rank, num_elements)
        return fields if sequence is None else f'{fields}, "Seq": {sequence}'

    @lru_cache(maxsize=10_000)  # noqa: B019 - groups are few and small
    def _args(self, collective: Collective, rank: int, num_elements: int) -> str:
        num_in, num_out = num_elements, num_elements
        if collective.has_larger_output:
            num_out *= len(self.ranks)
        if collective.has_larger_input:
            num_in *= len(self.ranks)
        fields = {
            "Collective name": collective.name,
            "In msg nelems": num_in,
            "Out msg nelems": num_out,
            "Group size": len(self.ranks),
            "dtype": "BFloat16",
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": self.name,
            "Process Group Description": self.description,
            "Process Group Ranks": json.dumps(list(self.ranks)),
            "Rank": self.ranks.index(rank),
        }
        return json.dumps(fields)[1:-1]

    def num_bytes(self, collective: Collective, num_elements: int) -> int:
        """Return the length of a message: the larger of input and output."""
        larger = collective.has_larger_output or collective.has_larger_input
        return num_elements * ELEMENT_BYTES * (len(self.ranks) if larger else 1)


def build_groups(settings: Settings) -> list[Group]:
    """Return all groups of a run, in the order in which torch would number them; the first is the default one."""
    ranks = tuple(range(settings.num_ranks))
    groups = [("default_pg", ranks)]
    if settings.layout == "tensor":
        groups += [("tensor", (rank, rank + 1)) for rank in ranks[::2]]
        groups += [("data", members) for members in (ranks[::2], ranks[1::2]) if len(members) > 1]
    elif settings.layout == "experts":
        groups.append(("experts", ranks))
    elif settings.layout == "pipeline" and settings.pipeline == "1F1B":
        groups.append(("mesh_pp", ranks))
    elif settings.layout == "pipeline":
        groups += [("pipeline", pair) for pair in itertools.pairwise(ranks)]
    return [Group(str(number), description, members) for number, (description, members) in enumerate(groups)]
