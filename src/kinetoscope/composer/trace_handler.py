"""composer: the TraceHandler, under Composer's module path, as a Callback that a Trainer takes."""

from kinetoscope.composer.callback import GuardedCallback, TrainerCallback
from kinetoscope.recording import contract

__all__ = ["TraceHandler"]


class TraceHandler(GuardedCallback, contract.TraceHandler, TrainerCallback):
    """As `kinetoscope.TraceHandler`; the Trainer calls its events. Override the methods that you need."""
