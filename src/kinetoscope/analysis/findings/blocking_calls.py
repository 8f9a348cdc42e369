"""Reasons of waits of a thread: words for titles, and advice."""

import re
from typing import Any, NamedTuple

from kinetoscope.analysis.findings.evidence.stalls import Stalls

GIL = re.compile(r"GIL(?:, (.+) ran)?")
"""The state of a thread that waits for the GIL, and which thread held it."""

_MIN_SHARE_OF_CALL = 0.4
"""Advice is about one call from this share of the samples on."""


class WaitReason(NamedTuple):
    """Words of a title for a state of a thread, and the advice."""

    title: str
    advice: str


_IN_BACKGROUND = "call it every n-th step, or from a background thread."
_WAITS = {
    "another thread": WaitReason(
        "waiting for another thread",
        "The loop waits at a lock, queue, event or join: hold the lock for less time, start the other thread's work a "
        "step earlier, or poll with `queue.get_nowait()`.",
    ),
    "sleep": WaitReason("in sleep", "Remove `time.sleep()` from the loop, or wait with `threading.Event.wait()`."),
    "fsync": WaitReason("in fsync", f"`os.fsync()` returns only after the disk has written: {_IN_BACKGROUND}"),
    "file": WaitReason(
        "in file I/O",
        "Write from a background thread with a queue, many values at a time, and read the next piece ahead.",
    ),
    "folder": WaitReason(
        "in file-system calls",
        "Keep files open, and open, rename or delete files every n-th step or in a background thread: on network "
        "storage each call is a round trip.",
    ),
    "network": WaitReason(
        "in network I/O",
        "Send and receive in a background thread with a queue, many values at a time. Set a timeout, so that a server "
        "that does not answer cannot stop the loop.",
    ),
    "pipe": WaitReason(
        "in I/O on a pipe or local socket",
        "Start the work at the other end a step earlier, or poll with `Connection.poll()`.",
    ),
    "events": WaitReason("in select or poll", "Wait in a background thread, and pass its results on with a queue."),
    "child process": WaitReason(
        "waiting for a child process",
        "Start it with `subprocess.Popen()` and check `poll()` in a later step, or do its work in this process.",
    ),
    "device": WaitReason("in a device driver", f"Calls into a driver wait for the device: {_IN_BACKGROUND}"),
    "page fault": WaitReason(
        "in page faults",
        "The first access to a mapped file (numpy.memmap, mmap) reads from disk: access it in a DataLoader worker "
        "first. If the machine swaps, reduce memory use.",
    ),
    "system call": WaitReason("in a system call", f"System calls can wait for the kernel: {_IN_BACKGROUND}"),
}
_UNKNOWN_WAIT = WaitReason(
    "for an unknown reason",
    "Record the reason: `kinetoscope run --diagnose` (`diagnose=True` in Python) does so on Linux.",
)
_SAVE = WaitReason(
    "saving a checkpoint",
    "Save less often, copy the state to the CPU and call `torch.save()` from a background thread, or save in the "
    "background: `torch.distributed.checkpoint.async_save(state, checkpoint_id=path)`.",
)
_CALLS = ((re.compile(r"^(?:_?save|_legacy_save) of torch/serialization\.py"), _SAVE),)
"""Functions of libraries whose advice is better than that of the system call that they wait in."""


def find_wait_reason(sample: dict[str, Any]) -> WaitReason:
    """Return the reason of the wait in a sample, by its ``call`` or ``state``."""
    for pattern, reason in _CALLS:
        if pattern.match(sample.get("call") or ""):
            return reason
    state = sample.get("state") or ""
    if gil := GIL.fullmatch(state):
        holder = f"the thread {gil[1]}" if gil[1] else "another thread"
        return WaitReason(
            f"waiting for the GIL, held by {holder}",
            f"Only one thread runs Python at a time: move the work of {holder} to another process, such as a "
            "DataLoader worker, or into operators that release the GIL.",
        )
    return _WAITS.get(state, _UNKNOWN_WAIT)


def advise_on_call(stalls: Stalls, blocked: Stalls) -> str:
    """Return advice on the line with most samples of some stalls, by its call; "" if there is none.

    It is by the reason of a wait where the line waits for longer than it runs.
    """
    found = stalls.by_call.drop_nulls("line").to_dicts()
    if not found or found[0]["share"] < _MIN_SHARE_OF_CALL:
        return ""
    known = [reason.advice for pattern, reason in _CALLS if pattern.match(found[0]["call"] or "")]
    waits = blocked.by_call.filter(line=found[0]["line"]).to_dicts()
    known += [find_wait_reason(wait).advice for wait in waits if wait["total_ns"] > found[0]["total_ns"]]
    return f"{known[0]} " if known else ""
