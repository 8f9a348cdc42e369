"""torch: Python frames that need care: our own, which nobody wants to see, and those of threads without a number."""

import json
import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import kinetoscope
from kinetoscope.formats.chrome import Event

_ID, _PARENT = "Python id", "Python parent id"
_BUILT_IN = "<built-in "


def _prefixes() -> tuple[str, ...]:
    """What the names of our frames begin with: our package's path, from which torch takes what `sys.path` has of it.

    And what ends each ``with marker:``, which is a call of C from the user's frame.
    """
    folder = Path(kinetoscope.__file__).resolve().parent
    paths = [folder, Path(kinetoscope.__file__).parent]
    parts = [path.parts[first:] for path in paths for first in range(1, len(path.parts))]
    names = {"/".join(part) + "/" for part in parts} | {f"{path}/" for path in paths}
    return (*sorted(names, key=len), "<built-in method __exit__ of kinetoscope.")


PREFIXES = _prefixes()


class OwnFrames:
    """Frames of ours, by their ids: what C functions of Python's our frames call directly is ours as well.

    ``above`` has for each the id of the nearest frame above it that is not ours, as Kineto would write it.
    """

    def __init__(self, above: dict[int, Any] | None = None) -> None:
        self.above = above if above is not None else {}

    def takes(self, name: str, number: int | None, parent: Any) -> bool:
        """Whether a frame is ours; remembers it then by its number, if it has one. Parents come before children."""
        is_ours = name.startswith(PREFIXES) or (name.startswith(_BUILT_IN) and parent in self.above)
        if is_ours and number is not None:
            self.above[number] = self.above.get(parent, parent)
        return is_ours


def without_own(stack: list[str]) -> list[str]:
    """A stack, innermost frame first, without our frames and what they call of Python's C functions."""
    return [
        name
        for name, caller in pairwise([*stack, ""])
        if not name.startswith(PREFIXES) and not (name.startswith(_BUILT_IN) and caller.startswith(PREFIXES))
    ]


def drop_own_frames(events: list[Event], own: OwnFrames) -> None:
    """Takes our frames out of a trace's events, in place; what they called gets the frame above for a parent."""
    events[:] = _without(events, own)


def _without(events: Iterable[Event], own: OwnFrames) -> Iterable[Event]:
    for event in events:
        args = event.get("args")
        if event.get("cat") == "python_function" and isinstance(args, dict):
            if own.takes(str(event.get("name")), args.get(_ID), args.get(_PARENT)):
                continue
            if args.get(_PARENT) in own.above:
                args[_PARENT] = own.above[args[_PARENT]]
        yield event


ORPHAN_TID = 1 << 22
"""The number of that track; no thread of Linux has it. `src/native/kineto/kineto_text.c` knows it too."""


def move_orphan_frames(events: Iterable[Event]) -> None:
    """Moves the frames, in place."""
    for event in events:
        if event.get("cat") == "python_function" and event.get("tid") == 0:
            event["tid"] = ORPHAN_TID


def orphan_track_name() -> Event:
    """What names the track of this process's strays."""
    args = {"name": "Python threads without a number"}
    return {"ph": "M", "name": "thread_name", "pid": os.getpid(), "tid": ORPHAN_TID, "args": args}


def orphan_track_line() -> bytes:
    """The same as a line of a trace, as ChromeWriter writes it."""
    return json.dumps(orphan_track_name(), separators=(",", ":")).encode()
