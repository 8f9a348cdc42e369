"""torch: which activities to record. What the user passed flows in, a set, its filters and the device flow out."""

# torch.autograd does not export what its own profiler uses of it.
# pyright: reportPrivateImportUsage=false

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch.profiler import ProfilerActivity

from kinetoscope.errors import ActivityTypeError, NoActivitiesError, SettingsError

Activity = ProfilerActivity | dict[ProfilerActivity, list[str]]


@dataclass(frozen=True, slots=True)
class ActivitySelection:
    """The groups of activities to record, and for some of them the only types wanted of the group."""

    activities: set[ProfilerActivity]
    filters: dict[ProfilerActivity, set[str]] = field(default_factory=dict)

    def device(self) -> str | None:
        """The name of the device that is recorded beside the CPU."""
        for name, device in _device_names():
            if getattr(ProfilerActivity, name, None) in self.activities:
                return device
        return None


def supported_activities() -> set[ProfilerActivity]:
    """The activities that this machine and this build of torch can record."""
    return torch.autograd._supported_activities()


def select_activities(wanted: Iterable[Activity] | None) -> ActivitySelection:
    """What was ``wanted``, sorted out; None wants everything that is supported.

    Raises `SettingsError`: also a TypeError for what is no activity, an AssertionError if none is wanted.
    """
    if wanted is None:
        return ActivitySelection(supported_activities())
    selection = ActivitySelection(set())
    for item in wanted:
        _add(selection, item)
    if not selection.activities:
        raise NoActivitiesError("activities is empty, so there is nothing to record. Leave it out to record all.")
    return selection


def _add(selection: ActivitySelection, item: object) -> None:
    for activity, types in item.items() if isinstance(item, dict) else ((item, None),):
        if not isinstance(activity, ProfilerActivity):
            raise ActivityTypeError(
                f"activities holds {item!r}. It takes members of ProfilerActivity and dicts from such a member to "
                "the names of the activity types to record."
            )
        if activity in selection.activities:
            raise SettingsError(f"activities names {activity} more than once.")
        selection.activities.add(activity)
        if types is not None:
            selection.filters[activity] = _names(activity, types)


def _names(activity: ProfilerActivity, types: object) -> set[str]:
    if not isinstance(types, Iterable) or isinstance(types, str):
        raise ActivityTypeError(
            f"activities wants {types!r} of {activity}. It takes a list of the names of activity types; the "
            "configurations of torch 2.15 are not supported."
        )
    return set(types)


def _device_names() -> Iterable[tuple[str, str]]:
    yield from (("CUDA", "cuda"), ("XPU", "xpu"), ("MTIA", "mtia"), ("HPU", "hpu"))
    yield "PrivateUse1", torch._C._get_privateuse1_backend_name()
