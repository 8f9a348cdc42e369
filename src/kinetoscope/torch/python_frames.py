"""torch: two kinds of Python frames that a trace must not show as Kineto records them.

Our own frames, which nobody wants to see, are left out. Orphan frames, which belong to threads whose number Kineto does
not know, get a track of their own.
"""

import json
import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import kinetoscope
from kinetoscope.formats.chrome import Event

ORPHAN_TID = 1 << 22
"""The track of orphan frames; no thread of Linux has this number. `src/native/kineto/kineto_text.c` has it too."""
_ID, _PARENT = "Python id", "Python parent id"
_BUILT_IN = "<built-in "


def _find_prefixes() -> tuple[str, ...]:
    """Return the prefixes of our frames' names: our package's path, without the part of it that is in `sys.path`.

    The last ones are the start and the end of each ``with marker:``, C functions called from the user's frame. CPython
    shows the start from 3.14 on. A class in Python that inherits them is named without its module, and the end of a
    marker that records nothing is no method.
    """
    folder = Path(kinetoscope.__file__).resolve().parent
    paths = [folder, Path(kinetoscope.__file__).parent]
    parts = [path.parts[first:] for path in paths for first in range(1, len(path.parts))]
    names = {"/".join(part) + "/" for part in parts} | {f"{path}/" for path in paths}
    owners = ("kinetoscope.", "Marker object", "EngineMarker object")
    with_marker = (f"<built-in method {name} of {owner}" for name in ("__enter__", "__exit__") for owner in owners)
    return (*sorted(names, key=len), *with_marker, "<built-in function __exit__>")


PROFILER_PREFIXES = _find_prefixes()


class ProfilerFrames:
    """Our own frames by their ids; C functions that our frames call directly count as ours too.

    ``above`` maps each to the id of the nearest frame above it that is not ours.
    """

    def __init__(self, above: dict[int, Any] | None = None) -> None:
        self.above = above if above is not None else {}

    def add_if_profiler_frame(self, name: str, number: int | None, parent: Any) -> bool:
        """Whether the frame is ours, which is remembered if it has a number. Parents must come before children."""
        is_profiler_frame = name.startswith(PROFILER_PREFIXES) or (name.startswith(_BUILT_IN) and parent in self.above)
        if is_profiler_frame and number is not None:
            self.above[number] = self.above.get(parent, parent)
        return is_profiler_frame


def drop_from_stack(stack: list[str]) -> list[str]:
    """A stack, innermost frame first, without our frames and the C functions that they call."""
    return [
        name
        for name, caller in pairwise([*stack, ""])
        if not name.startswith(PROFILER_PREFIXES)
        and not (name.startswith(_BUILT_IN) and caller.startswith(PROFILER_PREFIXES))
    ]


def drop_profiler_frames(events: list[Event], known_frames: ProfilerFrames) -> None:
    """Removes our frames from a trace's events, in place; the parent of what they called is the frame above."""
    events[:] = _drop_profiler_frames(events, known_frames)


def _drop_profiler_frames(events: Iterable[Event], known_frames: ProfilerFrames) -> Iterable[Event]:
    for event in events:
        args = event.get("args")
        if event.get("cat") == "python_function" and isinstance(args, dict):
            if known_frames.add_if_profiler_frame(str(event.get("name")), args.get(_ID), args.get(_PARENT)):
                continue
            if args.get(_PARENT) in known_frames.above:
                args[_PARENT] = known_frames.above[args[_PARENT]]
        yield event


def move_orphan_frames(events: Iterable[Event]) -> None:
    """Moves orphan frames to their track, in place.

    Kineto puts them on thread 0, which viewers draw on the main thread, where they overlap its spans.
    """
    for event in events:
        if event.get("cat") == "python_function" and event.get("tid") == 0:
            event["tid"] = ORPHAN_TID


def orphan_track_name() -> Event:
    """The metadata event that names the track of this process's orphan frames."""
    args = {"name": "Python threads without a number"}
    return {"ph": "M", "name": "thread_name", "pid": os.getpid(), "tid": ORPHAN_TID, "args": args}


def orphan_track_line() -> bytes:
    """`orphan_track_name` as a line of a trace."""
    return json.dumps(orphan_track_name(), separators=(",", ":")).encode()
