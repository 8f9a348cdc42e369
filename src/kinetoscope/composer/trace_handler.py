"""composer: the TraceHandler, under Composer's module path, as a Callback that a Trainer takes."""

from kinetoscope.composer.callback import GuardedCallback, TrainerCallback
from kinetoscope.recording.window import trace_handler

__all__ = ["TraceHandler"]


class TraceHandler(GuardedCallback, trace_handler.TraceHandler, TrainerCallback):
    """As `kinetoscope.TraceHandler`; the Trainer calls its events. Override the methods that you need."""
