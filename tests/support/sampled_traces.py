"""Traces with samples of stacks, and what is found in them."""

import json

import kinetoscope

STEP_US, NUM_STEPS = 100_000, 8
LOOP, LOOP_SAMPLES, WORKER_SAMPLES, ENDED_SAMPLES = 1, 2, 3, 4
LIBRARIES = ("torch/", "json/")
FETCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def span(name, category, tid, begin_us, dur_us):
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": begin_us, "dur": dur_us}


def stack(tid, begin_us, dur_us, *names):
    """Return a sample, or equal ones in a row, of frames from the outermost inwards; `LIBRARIES` are not the user's."""
    kinds = ["stack_sample,library" if name.startswith(LIBRARIES) else "stack_sample" for name in names]
    return [span(name, kind, tid, begin_us, dur_us) for name, kind in zip(names, kinds, strict=True)]


def each_step(*parts):
    """Return the events that ``parts``, functions of a moment, make in each step."""
    return [event for step in range(NUM_STEPS) for part in parts for event in part(STEP_US * step)]


def waiting_steps(begin):
    """A step that waits for its data for most of it."""
    yield span(f"ProfilerStep#{begin // STEP_US}", "user_annotation", LOOP, begin, STEP_US - 10)
    yield span(FETCH, "user_annotation", LOOP, begin + 10, 79_900)
    yield span("aten::mm", "cpu_op", LOOP, begin + 80_100, 19_000)


def busy_steps(begin):
    """A step with a long interval of Python between two operators."""
    yield span(f"ProfilerStep#{begin // STEP_US}", "user_annotation", LOOP, begin, STEP_US - 10)
    yield span("aten::mm", "cpu_op", LOOP, begin - 10, 19_900)
    yield span("aten::sum", "cpu_op", LOOP, begin + 90_000, 9_000)


def found_in(events, kind, folder, *, interval_ms=10, has_states=False):
    """Return the finding of a kind in a trace of these events."""
    return next(finding for finding in findings_in(events, folder, interval_ms, has_states) if finding.kind == kind)


def findings_in(events, folder, interval_ms=10, has_states=False):
    """Return the findings on a trace of these events. ``has_states``: the samplers record the states of threads."""
    names = {LOOP: "MainThread", LOOP_SAMPLES: "samples of MainThread"}
    workers = {WORKER_SAMPLES, ENDED_SAMPLES} & {event["tid"] for event in events}
    names |= dict.fromkeys(workers, "DataLoader worker 0: samples of MainThread")
    about = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": name}} for tid, name in names.items()
    ]
    instant = {"ph": "i", "s": "t", "cat": "stack_sample,state" if has_states else "stack_sample", "pid": 1, "ts": 0}
    about += [instant | {"name": f"sampled every {interval_ms} ms", "tid": tid} for tid in (LOOP_SAMPLES, *workers)]
    path = folder / "rank0.json"
    path.write_text(json.dumps({"traceEvents": about + events}), encoding="utf-8")
    return kinetoscope.analyze(path, cache=False).findings
