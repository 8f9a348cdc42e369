"""Python frames that a trace must not show as Kineto records them: Kinetoscope's own, and orphan frames.

Kinetoscope's frames are left out. Orphan frames, which belong to threads of unknown number, get a track
of their own.
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
"""Track of orphan frames, above the largest thread number of Linux. `src/native/kineto/kineto_text.c` repeats it."""
_ID, _PARENT = "Python id", "Python parent id"
_BUILT_IN = "<built-in "


def _find_prefixes() -> tuple[str, ...]:
    """Return the prefixes of Kinetoscope's frame names: the package's path, without the part of it in `sys.path`.

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
    """Kinetoscope's frames by id, including C functions that they call directly.

    Attributes:
        above: Id of the nearest frame above each that is not Kinetoscope's.
    """

    def __init__(self, above: dict[int, Any] | None = None) -> None:
        self.above = above if above is not None else {}

    def add_if_profiler_frame(self, name: str, number: int | None, parent: Any) -> bool:
        """Return whether the frame is Kinetoscope's, and register it if it has a number; call for parents first."""
        is_profiler_frame = name.startswith(PROFILER_PREFIXES) or (name.startswith(_BUILT_IN) and parent in self.above)
        if is_profiler_frame and number is not None:
            self.above[number] = self.above.get(parent, parent)
        return is_profiler_frame


def drop_from_stack(stack: list[str]) -> list[str]:
    """Return a stack, innermost frame first, without Kinetoscope's frames and the C functions that they call."""
    return [
        name
        for name, caller in pairwise([*stack, ""])
        if not name.startswith(PROFILER_PREFIXES)
        and not (name.startswith(_BUILT_IN) and caller.startswith(PROFILER_PREFIXES))
    ]


def drop_profiler_frames(events: list[Event], known_frames: ProfilerFrames) -> None:
    """Remove Kinetoscope's frames from a trace's events, in place; their children get the frame above as parent."""
    events[:] = _drop_profiler_frames(events, known_frames)


def _drop_profiler_frames(events: Iterable[Event], known_frames: ProfilerFrames) -> Iterable[Event]:
    """Yield the events other than Kinetoscope's frames, with corrected parents."""
    for event in events:
        args = event.get("args")
        if event.get("cat") == "python_function" and isinstance(args, dict):
            if known_frames.add_if_profiler_frame(str(event.get("name")), args.get(_ID), args.get(_PARENT)):
                continue
            if args.get(_PARENT) in known_frames.above:
                args[_PARENT] = known_frames.above[args[_PARENT]]
        yield event


def move_orphan_frames(events: Iterable[Event]) -> None:
    """Move orphan frames to their track, in place.

    Kineto puts them on thread 0, which viewers draw on the main thread, where they overlap its spans.
    """
    for event in events:
        if event.get("cat") == "python_function" and event.get("tid") == 0:
            event["tid"] = ORPHAN_TID


def orphan_track_name() -> Event:
    """Return the metadata event that names the track of this process's orphan frames."""
    args = {"name": "Python threads without a number"}
    return {"ph": "M", "name": "thread_name", "pid": os.getpid(), "tid": ORPHAN_TID, "args": args}


def orphan_track_line() -> bytes:
    """Return `orphan_track_name` as a line of a trace."""
    return json.dumps(orphan_track_name(), separators=(",", ":")).encode()
