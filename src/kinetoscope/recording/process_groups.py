"""State of this rank in torch's process groups, for the report on a hang. Other ranks are not contacted."""

import os
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from kinetoscope.core.clock.sync import STORE_ERRORS
from kinetoscope.core.job.ranks import torch_distributed
from kinetoscope.pulse.stalls import GroupState
from kinetoscope.recording.private_names import default_store, dump_flight_recorder, groups_of_process

_MAX_GROUPS = 64
_FLIGHT_RECORDER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


def find_store() -> Any:
    """Return the store of torch.distributed's process group, or None. Import nothing."""
    if torch_distributed() is not None and (find := default_store.find()) is not None:
        with suppress(*STORE_ERRORS):
            return find()
    return None


def read_group_states() -> list[GroupState]:
    """Return the progress of this rank in each of its process groups, at most 64. Other ranks are not contacted."""
    states: list[GroupState] = []
    last = _read_last_collectives()
    for group, ranks in list(_find_groups().items())[:_MAX_GROUPS]:
        with suppress(Exception):  # a group that is being destroyed
            sequence = int(group._get_sequence_number_for_group())
            name = str(group.group_name)
            members = sorted(int(rank) for rank in ranks)
            states.append(GroupState(name, members, sequence, last.get((name, sequence), ""), _read_timeout_s(group)))
    return states


def read_group_timeout_s() -> float | None:
    """Return the timeout of collectives of the default group in seconds; None if it is unknown."""
    groups = _find_groups()
    return _read_timeout_s(next(iter(groups))) if groups else None


def _find_groups() -> dict[Any, Any]:
    """Return the process groups of this process, each with its ranks."""
    world = groups_of_process.find()
    return getattr(world, "pg_group_ranks", None) or {}


def _read_timeout_s(group: Any) -> float | None:
    with suppress(Exception):  # a backend without options
        for device in group._device_types:
            timeout = group._get_backend(device).options._timeout
            if isinstance(timeout, timedelta):
                return timeout.total_seconds()
    return None


def _read_last_collectives() -> dict[tuple[str, int], str]:
    """Return names of collectives by group and sequence number, if torch's flight recorder is on."""
    dump = dump_flight_recorder.find()
    if dump is None or not any(os.environ.get(name, "0") not in ("", "0") for name in _FLIGHT_RECORDER):
        return {}
    with suppress(Exception):  # torch may rename fields of its dump
        entries = msgspec.json.decode(dump(includeCollectives=True, onlyActive=False))["entries"]
        return {(str(each["process_group"][0]), each["collective_seq_id"]): each["profiling_name"] for each in entries}
    return {}
