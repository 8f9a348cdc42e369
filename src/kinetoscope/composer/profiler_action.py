"""composer: ProfilerAction, under Composer's module path."""

from kinetoscope.recording.action import ProfilerAction

__all__ = ["ProfilerAction"]
