"""ProfilerAction under Composer's module path."""

from kinetoscope.recording.markers.schedule import ProfilerAction

__all__ = ["ProfilerAction"]
