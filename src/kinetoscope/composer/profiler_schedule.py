"""Function `cyclic_schedule` under Composer's module path."""

from kinetoscope.recording.markers.schedule import cyclic_schedule

__all__ = ["cyclic_schedule"]
