"""TraceHandler under Composer's module path, as a Callback for a Trainer."""

from kinetoscope.composer.callback import GuardedCallback, TrainerCallback
from kinetoscope.recording.window import trace_handler

__all__ = ["TraceHandler"]


class TraceHandler(GuardedCallback, trace_handler.TraceHandler, TrainerCallback):
    """Variant of `kinetoscope.TraceHandler` for a Trainer, which calls its events. Override methods as needed."""
