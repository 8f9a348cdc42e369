"""torch: Python frames of threads that Kineto has no number for. Events flow in; these get a track of their own.

Kineto puts them on thread 0, which viewers draw on the main thread, where they overlap its spans.
"""

import json
import os
from collections.abc import Iterable

from kinetoscope.formats.chrome import Event

STRAY_TID = 1 << 22
"""The number of that track; no thread of Linux has it. `src/native/kineto/kineto_text.c` knows it too."""


def move_strays(events: Iterable[Event]) -> None:
    """Moves the frames, in place."""
    for event in events:
        if event.get("cat") == "python_function" and event.get("tid") == 0:
            event["tid"] = STRAY_TID


def stray_name() -> Event:
    """What names the track of this process's strays."""
    args = {"name": "Python threads without a number"}
    return {"ph": "M", "name": "thread_name", "pid": os.getpid(), "tid": STRAY_TID, "args": args}


def stray_name_line() -> bytes:
    """The same as a line of a trace, as ChromeWriter writes it."""
    return json.dumps(stray_name(), separators=(",", ":")).encode()
