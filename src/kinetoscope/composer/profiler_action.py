"""composer: ProfilerAction, under Composer's module path."""

from kinetoscope.recording.schedule import ProfilerAction

__all__ = ["ProfilerAction"]
