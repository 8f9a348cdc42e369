"""Events of devices of a window, and the time that they take."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import polars as pl

from kinetoscope.analysis.windows.columns import filter_rows
from kinetoscope.analysis.windows.intervals import IntervalUnion
from kinetoscope.frames.trace import Trace


class DeviceTime(NamedTuple):
    """Time of one device: in compute kernels, in all kernels including communication, and in any event."""

    compute: IntervalUnion
    kernels: IntervalUnion
    busy: IntervalUnion

    @classmethod
    def of(cls, events: pl.DataFrame) -> "DeviceTime":
        """Return the time of some events of one device."""
        times, kind = events[["begin", "end"]], events["kind"]
        kernels = filter_rows(times, kind != "copy")
        return cls(IntervalUnion(filter_rows(times, kind == "compute")), IntervalUnion(kernels), IntervalUnion(times))


@dataclass(frozen=True)
class Devices:
    """The ``events`` of all devices of a window, as `schemas.DEVICE_EVENTS`, in the order of ``begin``."""

    trace: Trace
    events: pl.DataFrame

    @cached_property
    def frames(self) -> list[pl.DataFrame]:
        """The events of each device, in the order of the devices' first events."""
        is_one = self.events["device"].n_unique() == 1
        return [self.events] if is_one else self.events.partition_by("device", maintain_order=True)

    @cached_property
    def times(self) -> list[DeviceTime]:
        """The time of each of these devices."""
        return [DeviceTime.of(events) for events in self.frames]

    @cached_property
    def time(self) -> DeviceTime:
        """The time of all devices together."""
        return self.times[0] if len(self.frames) == 1 else DeviceTime.of(self.events)

    @cached_property
    def names(self) -> dict[int, str]:
        """The names of the devices, as far as the trace has them."""
        return {device: str(about["name"]) for device, about in self.trace.devices.items() if "name" in about}
