"""sources: what holds more and more tensors while a window is open, and the line that puts them there."""

import sys
import threading
from collections import deque
from types import FrameType
from typing import Any, NamedTuple

from kinetoscope.core.job.event import skippable
from kinetoscope.core.job.state import RunState
from kinetoscope.core.paths.source_files import is_user_code, source_name
from kinetoscope.formats.own_names import MEMORY_HOLDER
from kinetoscope.recording.private_names import frame_of_thread
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.float64_tensors import Float64Tensors
from kinetoscope.sources.growing_lines import growing_line
from kinetoscope.sources.held_objects import Held, Kinds, is_container, length_of, look
from kinetoscope.sources.held_tensors import TensorFacts, find_facts, graph_clock, grows_by_steps, new_tensors
from kinetoscope.sources.window_source import WindowSource

_FEWEST_NEW = 2
_MOST_STEPS_EACH = 20
_MOST_HOLDERS = 8
_LEAST_SHARE = 0.25


class _Sizes(NamedTuple):
    """What the first look saw: how long each container was, by hashes that tell it from others; the function of the
    loop; and whether it saw all."""

    lengths: dict[int, int]
    clock: int | None
    function: str | None
    is_complete: bool

    def growth(self, held: Held) -> int:
        """How much longer a container is now; 0 if it is not known."""
        length = length_of(held.value, held.kind)
        before = (self.lengths.get(key, length + 1) for key in _keys_of(held))
        return next((length - known for known in before if known <= length), 0)


class GrowingMemory(WindowSource):
    """Finds what keeps tensors from step to step: a list of losses, a cache, a sum that drags its graph along.

    At the end of the first batch of a window, and when the window closes, it looks at what the functions around the
    loop hold: their variables, those of their modules, and what is below these. What has got longer by tensors, step by
    step, is written as an instant of category ``memory_holder``: its name, the line that adds to it where that is sure,
    and how many tensors it got. Only lengths are kept between the looks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = self._tid = self._num_steps = 0
        self._sizes: _Sizes | None = None

    def install(self, run: RunContext) -> None:
        self._thread, self._tid = threading.get_ident(), threading.get_native_id()

    @skippable
    def batch_end(self, state: RunState, logger: Any) -> None:
        if self._run is None:
            return
        if self._sizes is not None:
            self._num_steps += 1
        elif "torch.nn" in sys.modules and find_facts() is not None:
            self._look_first(self._run)

    def finish(self, run: RunContext) -> None:
        sizes, self._sizes = self._sizes, None
        num_steps, self._num_steps = self._num_steps, 0
        if sizes is None or not num_steps:
            return
        is_here = threading.get_ident() == self._thread
        # A variable with this function's own frame would be a cycle, which keeps all that it holds.
        frame = sys._getframe().f_back if is_here else frame_of_thread(self._thread)
        if _function_of_user(frame) == sizes.function:  # else the function of the loop has ended
            self._look_last(run, frame, sizes, num_steps)

    def remove(self) -> None:
        self._sizes, self._num_steps = None, 0

    def _look_first(self, run: RunContext) -> None:
        frame = sys._getframe().f_back
        with look(run, frame) as objects:
            containers = (held for held in objects.found if is_container(held.kind))
            lengths = {key: length_of(held.value, held.kind) for held in containers for key in _keys_of(held)}
            self._sizes = _Sizes(lengths, graph_clock(), _function_of_user(frame), objects.is_complete)
            for source in run.sources:
                if isinstance(source, Float64Tensors):
                    run.call(source, source.look_at, objects)

    def _look_last(self, run: RunContext, frame: FrameType | None, sizes: _Sizes, num_steps: int) -> None:
        facts = find_facts()
        if facts is None:
            return
        with look(run, frame) as objects:
            change = _Change(sizes, num_steps, graph_clock(), facts, objects.kinds)
            notes = [_place_args(held) | args for held in objects.found if (args := change.args_of(held)) is not None]
            notes.sort(key=lambda args: (args["graphs"], args["tensors"], args.get("bytes", 0)), reverse=True)
            for args in notes[:_MOST_HOLDERS]:
                self._note(run, f"memory holder {args['holder']}", args)
            seen = {"steps": num_steps, "holders": len(notes), "objects": len(objects.found)}
            seen |= {"functions": objects.num_frames, "complete": int(sizes.is_complete and objects.is_complete)}
            self._note(run, "memory holders were looked for", seen)

    def _note(self, run: RunContext, name: str, args: dict[str, Any]) -> None:
        run.add_event(SourceEvent(name, MEMORY_HOLDER, run.clock.monotonic_ns(), None, self._tid, args))


class _Change(NamedTuple):
    """What has changed in ``num_steps`` steps since the first look."""

    sizes: _Sizes
    num_steps: int
    clock: int | None
    facts: TensorFacts
    kinds: Kinds

    def args_of(self, held: Held) -> dict[str, Any] | None:
        """What is told of something that gets tensors step by step; None for anything else."""
        if is_container(held.kind):
            return self._of_container(held)
        return self._of_tensor(held.value) if held.kind == "tensor" else None

    def _of_tensor(self, tensor: Any) -> dict[str, Any] | None:
        since, until, num_steps = self.sizes.clock, self.clock, self.num_steps
        graph = self.facts.graph(tensor)
        if graph is None or since is None or until is None or not grows_by_steps(graph, since, until, num_steps):
            return None
        if self.facts.graph_memory(graph) is None:
            return None
        return _args(num_steps, num_steps, num_steps, None, self.facts.device(tensor))

    def _of_container(self, held: Held) -> dict[str, Any] | None:
        num_new = self.sizes.growth(held)
        if held.kind == "deque" and deque.maxlen.__get__(held.value) is not None:  # it lets go of its oldest
            return None
        if num_new < _FEWEST_NEW or num_new * _MOST_STEPS_EACH < self.num_steps:
            return None
        new = new_tensors(held, num_new, self.kinds, self.facts)
        if new.share < _LEAST_SHARE:
            return None
        num_tensors, num_graphs = round(num_new * new.share), round(num_new * new.share_with_graph)
        return _args(self.num_steps, num_tensors, num_graphs, round(num_new * new.element_bytes), new.device)


def _keys_of(held: Held) -> tuple[int, int]:
    """By what a container is known again: its name, or itself. These keep nothing alive, and are no work for Python's
    garbage collector."""
    return hash((held.kind, held.identity)), hash((held.kind, id(held.value)))


def _args(
    num_steps: int, num_tensors: int, num_graphs: int, num_bytes: int | None, device: int | None
) -> dict[str, Any]:
    args: dict[str, Any] = {"steps": num_steps, "tensors": num_tensors, "graphs": num_graphs}
    args |= {} if num_bytes is None else {"bytes": num_bytes}
    return args if device is None else args | {"device": device}


def _place_args(held: Held) -> dict[str, Any]:
    """What holds, in which function or of which class, and the line that adds to it, if that is sure."""
    args: dict[str, Any] = {"holder": held.name, "kind": held.kind, "place": held.place}
    line = growing_line(held)
    return args if line is None else args | {"line": f"{source_name(line[0])}:{line[1]}"}


def _function_of_user(frame: FrameType | None) -> str | None:
    """The name of the innermost function of the user's, from a frame outwards."""
    while frame is not None:
        if is_user_code(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
        frame = frame.f_back
    return None
