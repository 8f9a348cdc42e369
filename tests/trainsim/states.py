"""Samples of the loop's thread in a simulated run: where it is blocked, or waits for a CPU."""

import json
import random
from bisect import bisect_right
from collections.abc import Iterator
from itertools import groupby

from trainsim.engine import Window
from trainsim.intervals import clip, length_ns
from trainsim.settings import Settings

BLOCKED, STARVED = "blocked thread", "descheduled thread"
"""Categories of spans that no trace shows: the sampler's counter and its samples come from them."""

INTERVAL_NS = 100_000
_LOOP, _STEP, _BACKWARD = "train.py(12): main", "train.py(26): step", "train.py(27): step"
_WAITS = {BLOCKED: ("train.py(21): save", "fsync")} | dict.fromkeys(
    ("communication", "backward"), (_BACKWARD, "another thread")
)
"""Where the loop's thread waits, and for what."""

Sampled = tuple[str, str, int, int]


def counters(window: Window) -> Iterator[tuple[int, str]]:
    """The time of each reading, a moment after a step's end, and its values."""
    since, waits, starving = window.begin_ns, _waits(window), _spans(window, STARVED)
    for step in window.steps:
        at = step.end_ns + 1_000
        blocked, starved = (
            length_ns(clip([(begin, end) for _, begin, end in spans], since, at)) for spans in (waits, starving)
        )
        values = {"running_ns": at - since - blocked - starved, "starved_ns": starved, "blocked_ns": blocked}
        yield at, json.dumps(values)
        since = at


def samples(window: Window, seed: int) -> Iterator[Sampled]:
    """The frames of samples at irregular times: name, category, begin and end."""
    draw, at, looks = random.Random(seed), window.begin_ns, []
    waits = _waits(window)
    begins = [begin_ns for _, begin_ns, _ in waits]
    while at < window.end_ns:
        place = bisect_right(begins, at) - 1
        looks.append((at, waits[place][0] if place >= 0 and at < waits[place][2] else ""))
        at += int(INTERVAL_NS * draw.uniform(0.75, 1.25))
    yield _LOOP, "stack_sample", looks[0][0], at
    runs = [(kind, [time for time, _ in same]) for kind, same in groupby(looks, key=lambda look: look[1])]
    ends = [times[0] for _, times in runs[1:]] + [at]
    for (kind, times), end in zip(runs, ends, strict=True):
        line, reason = _WAITS.get(kind, (_STEP, ""))
        yield line, "stack_sample", times[0] + 10, end
        if reason:
            yield f"waits: {reason}", "stack_sample,state", times[0] + 20, end


def worker_samples(window: Window, worker: int, settings: Settings) -> Iterator[Sampled]:
    """Return the frames of a worker's samples: it builds a batch (waits for its storage, or computes), or waits for the
    next task."""
    number = 0
    for making in window.making:
        begin_ns, end_ns = max(making.begin_ns, window.begin_ns), min(making.end_ns, window.end_ns)
        if making.worker != worker or end_ns - begin_ns < 100:
            continue
        yield "torch/utils/data/_utils/fetch.py(54): fetch", "stack_sample,library", begin_ns, end_ns
        yield "data.py(7): __getitem__", "stack_sample", begin_ns + 10, end_ns
        for at in range(begin_ns, end_ns, INTERVAL_NS):
            waits = number % 20 != 0 if settings.workers_do == "wait" else number % 20 == 0
            number += 1
            if waits and at + 20 < end_ns:
                yield "waits: sleep", "stack_sample,state", at + 20, min(at + INTERVAL_NS, end_ns)
    yield from _idle(window, worker)


def _idle(window: Window, worker: int) -> Iterator[Sampled]:
    """Where a worker waits for the next task."""
    since = window.begin_ns
    for making in sorted(one for one in window.making if one.worker == worker):
        if making.begin_ns - since > 100:
            yield "multiprocessing/queues.py(113): get", "stack_sample,library", since, making.begin_ns
        since = max(since, making.end_ns)
    if window.end_ns - since > 100:
        yield "multiprocessing/queues.py(113): get", "stack_sample,library", since, window.end_ns


def _waits(window: Window) -> list[tuple[str, int, int]]:
    """Return the intervals in which the loop's thread waits for something else than the device and its batches."""
    return sorted([*_spans(window, BLOCKED), *window.waits], key=lambda wait: wait[1])


def _spans(window: Window, category: str) -> list[tuple[str, int, int]]:
    spans = (span for span in window.spans if span.category == category)
    return sorted((category, span.begin_ns, span.end_ns) for span in spans)
