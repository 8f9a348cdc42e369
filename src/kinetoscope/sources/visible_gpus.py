"""GPUs that this process can use, by torch's device numbers, without initialising CUDA.

NVML numbers all GPUs of the machine. CUDA numbers those that a process may use, in an order of its own: see "CUDA
Environment Variables" in NVIDIA's CUDA C++ Programming Guide.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Gpu:
    """A GPU, or a MIG instance of one, as NVML reports it.

    Attributes:
        handle: NVML's handle.
        address: PCI domain, bus and device.
        is_split: Whether it is divided into MIG instances.
    """

    handle: Any
    uuid: str = ""
    model: str = ""
    address: tuple[int, int, int] = (0, 0, 0)
    is_split: bool = False


FindGpu = Callable[[str], Gpu | None]
"""Function that returns the GPU or MIG instance with a UUID, or None."""


def visible_gpus(gpus: Iterable[Gpu], find: FindGpu, environment: Mapping[str, str], cuda: Any) -> dict[int, Gpu]:
    """Return the GPUs that this process can use, by torch's device numbers.

    Once torch has initialised CUDA, they are matched by UUID. Before that, the environment decides; if it leaves their
    order open, the result is empty.

    Args:
        gpus: All GPUs of the machine.
        find: Returns the GPU or MIG instance with a UUID.
        environment: Variables such as ``CUDA_VISIBLE_DEVICES``.
        cuda: ``torch.cuda``, or None.
    """
    gpus = list(gpus)
    if cuda is not None and cuda.is_initialized():
        uuids = [str(getattr(cuda.get_device_properties(number), "uuid", "")) for number in range(cuda.device_count())]
        if all(uuids):  # absent before torch 2.5
            return _match_by_uuid(uuids, gpus, find)
    return dict(enumerate(_match_by_environment(gpus, find, environment)))


def _match_by_uuid(uuids: Iterable[str], gpus: list[Gpu], find: FindGpu) -> dict[int, Gpu]:
    """Return the GPUs with these UUIDs, by their position."""
    known = {_normalize_uuid(gpu.uuid): gpu for gpu in gpus if gpu.uuid}
    found = {
        number: known.get(_normalize_uuid(uuid)) or find(f"MIG-{_normalize_uuid(uuid)}")
        for number, uuid in enumerate(uuids)
    }
    return {number: gpu for number, gpu in found.items() if gpu is not None}


def _normalize_uuid(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _match_by_environment(gpus: list[Gpu], find: FindGpu, environment: Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs that CUDA will use, in its order; empty if that is undetermined."""
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    names = [] if chosen is None else [name.strip() for name in chosen.split(",")]
    if chosen is not None and chosen.startswith("MIG-"):
        instance = find(names[0])  # CUDA uses one MIG instance only
        return [] if instance is None else [instance]
    if chosen is not None and chosen.startswith("GPU-"):
        return _choose(names, lambda name: _require_single([gpu for gpu in gpus if gpu.uuid.startswith(name)]))
    # By default the fastest GPU is the first, and GPUs of one model are in the order of their addresses.
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len({gpu.model or gpu for gpu in gpus}) > 1:
        return []
    in_order = sorted(gpus, key=lambda gpu: gpu.address)
    return in_order if chosen is None else _choose(names, lambda name: _find_by_number(name, in_order))


def _choose(names: Iterable[str], find: FindGpu) -> list[Gpu]:
    """Return the GPUs of a list as CUDA reads it: up to the first invalid name, and none if one is repeated."""
    found: list[Gpu] = []
    for name in names:
        gpu = find(name)
        if gpu is None:
            break
        if gpu in found:
            return []
        found.append(gpu)
    return found


def _require_single(gpus: list[Gpu]) -> Gpu | None:
    """Return the only GPU of a list, else None."""
    return gpus[0] if len(gpus) == 1 else None


def _find_by_number(name: str, gpus: list[Gpu]) -> Gpu | None:
    """Return the GPU by the leading digits of a name, which CUDA reads with C's strtoul."""
    digits = re.match(r"\+?([0-9]+)", name)
    number = int(digits[1]) if digits else len(gpus)
    return gpus[number] if number < len(gpus) else None
