"""sources: which of NVML's GPUs this process can use, and by which number torch knows each. CUDA is not initialised.

NVML numbers all GPUs of the machine. CUDA numbers those that a process may use, in an order of its own: see "CUDA
Environment Variables" in NVIDIA's CUDA C++ Programming Guide.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Gpu:
    """A GPU, or an instance of one (MIG), as NVML knows it: ``address`` is its PCI domain, bus and device, and
    ``is_split`` says whether it is divided into instances."""

    handle: Any
    uuid: str = ""
    model: str = ""
    address: tuple[int, int, int] = (0, 0, 0)
    is_split: bool = False


FindGpu = Callable[[str], Gpu | None]
"""Returns the GPU or instance with a UUID; None if there is none."""


def visible_gpus(gpus: Iterable[Gpu], find: FindGpu, environment: Mapping[str, str], cuda: Any) -> dict[int, Gpu]:
    """The ``gpus`` that this process can use, by the numbers that torch gives them.

    Once torch has initialised CUDA (``cuda`` is torch.cuda, or None), they are matched by UUID. Before that, the
    ``environment`` says which they are; where it leaves their order open, none is returned.
    """
    gpus = list(gpus)
    if cuda is not None and cuda.is_initialized():
        uuids = [str(getattr(cuda.get_device_properties(number), "uuid", "")) for number in range(cuda.device_count())]
        if all(uuids):  # they are unknown before torch 2.5
            return _match_by_uuid(uuids, gpus, find)
    return dict(enumerate(_match_by_environment(gpus, find, environment)))


def _match_by_uuid(uuids: Iterable[str], gpus: list[Gpu], find: FindGpu) -> dict[int, Gpu]:
    known = {_normalize_uuid(gpu.uuid): gpu for gpu in gpus if gpu.uuid}
    found = {
        number: known.get(_normalize_uuid(uuid)) or find(f"MIG-{_normalize_uuid(uuid)}")
        for number, uuid in enumerate(uuids)
    }
    return {number: gpu for number, gpu in found.items() if gpu is not None}


def _normalize_uuid(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _match_by_environment(gpus: list[Gpu], find: FindGpu, environment: Mapping[str, str]) -> list[Gpu]:
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    names = [] if chosen is None else [name.strip() for name in chosen.split(",")]
    if chosen is not None and chosen.startswith("MIG-"):
        instance = find(names[0])  # CUDA uses one instance only
        return [] if instance is None else [instance]
    if chosen is not None and chosen.startswith("GPU-"):
        return _choose(names, lambda name: _require_single([gpu for gpu in gpus if gpu.uuid.startswith(name)]))
    # By default the fastest GPU is the first, and GPUs of one model are in the order of their addresses.
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len({gpu.model or gpu for gpu in gpus}) > 1:
        return []
    in_order = sorted(gpus, key=lambda gpu: gpu.address)
    return in_order if chosen is None else _choose(names, lambda name: _find_by_number(name, in_order))


def _choose(names: Iterable[str], find: FindGpu) -> list[Gpu]:
    """As CUDA reads a list: it ends before the first name that is no GPU, and a GPU that is named twice leaves none."""
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
    return gpus[0] if len(gpus) == 1 else None


def _find_by_number(name: str, gpus: list[Gpu]) -> Gpu | None:
    """CUDA reads the digits at the begin of a name, as C's strtoul does."""
    digits = re.match(r"\+?([0-9]+)", name)
    number = int(digits[1]) if digits else len(gpus)
    return gpus[number] if number < len(gpus) else None
