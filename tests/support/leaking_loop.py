"""A recorded loop around which tests keep tensors, and the notes of `GrowingMemory` on it."""

import inspect

import pytest

from kinetoscope import GrowingMemory, Profiler, ProfilerAction
from kinetoscope.core.paths.source_files import source_name
from kinetoscope.testing import MemoryTraceHandler

torch = pytest.importorskip("torch")
NUM_STEPS = 12
WEIGHTS = torch.ones(12, requires_grad=True)


class Recording:
    """A recorded loop, whose notes are available after it."""

    def __init__(self, num_batches=NUM_STEPS + 1, more_sources=()):
        self._handler, self._num_batches = MemoryTraceHandler(), num_batches
        self._sources = [*more_sources, GrowingMemory()]

    def __iter__(self):
        def schedule(state):
            return (
                ProfilerAction.ACTIVE_AND_SAVE
                if state.timestamp.batch == self._num_batches - 1
                else ProfilerAction.ACTIVE
            )

        with Profiler(schedule, self._handler, sources=self._sources, strict=True) as profiler:
            yield from profiler.batches(range(self._num_batches))

    @property
    def notes(self):
        return [event.args for event in self._handler.events("memory_holder")]

    @property
    def holders(self):
        return {note["holder"]: note for note in self.notes if "holder" in note}


def forward():
    """Return a result with a graph that keeps 48 bytes for its backward pass."""
    return WEIGHTS.exp().sum()


def line_here(function):
    """Return the line of a function that is marked by a comment."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [number for number, text in enumerate(lines) if text.rstrip().endswith("# here")]
    return f"{source_name(inspect.getfile(function))}:{first + offset}"
