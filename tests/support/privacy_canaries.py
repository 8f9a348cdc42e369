"""Plants a word into every text of a trace that a user may have chosen, and searches files for it, unpacked."""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CANARY = "zebrafinch"
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{64,}={0,2}")
_SPAN_PHASES = ("X", "B", "E")
_OF_DEVICES = ("kernel", "gpu_memcpy", "gpu_memset")
_MEMORY = "[memory]"


def planted(value: Any, *, with_keys: bool = True) -> Any:
    """Return a value with the canary in all its texts, and in a key beside those of each object."""
    if isinstance(value, str):
        return f"{value} {CANARY}" if value else CANARY
    if isinstance(value, list):
        return [planted(part, with_keys=with_keys) for part in value]
    if isinstance(value, dict):
        changed = {key: planted(part, with_keys=with_keys) for key, part in value.items()}
        return changed | ({f"{CANARY} key": {CANARY: [CANARY, 1]}} if with_keys else {})
    return value


def planted_event(event: dict[str, Any], number: int, *, in_devices: bool) -> dict[str, Any]:
    """Return an event with the canary in all texts but the names of spans, which are torch's here. In most events, what
    analyses need stays as it is beside it; in every fifth, no text among the arguments does, nor, in half of them, its
    category: that of devices' events only ``in_devices``."""
    args = event.get("args", {})
    if event["ph"] == "M":
        return event | {"args": planted(args, with_keys=False)}
    if event["ph"] == "C" or not isinstance(args, dict):
        return event | {"name": planted(event["name"]), "args": dict(args) | {f"{CANARY} series": 1}}
    changed = (
        event if event["ph"] in _SPAN_PHASES or event["name"] == _MEMORY else event | {"name": planted(event["name"])}
    )
    if number % 5 or event["name"].startswith("ProfilerStep"):
        return changed | {"args": args | {f"{CANARY} key": {CANARY: [CANARY, 1]}, "note": CANARY}}
    category = event.get("cat", "")
    return changed | {
        "cat": planted(category) if number % 10 and (in_devices or category not in _OF_DEVICES) else category,
        "args": planted(args),
    }


def own_events(*, in_devices: bool) -> Iterator[dict[str, Any]]:
    """Events in which torch, Kineto and we write down what users named; ``in_devices``: one of a device, too."""
    about = {"pid": 1, "tid": 1, "dur": 5}
    frame = f"/data/{CANARY}/{CANARY}/train_{CANARY}.py(12): {CANARY}"
    names = [
        frame,
        f"nn.Module: {CANARY}_0",
        f"<built-in method {CANARY} of {CANARY} object>",
        f"train.py(3): {CANARY}",
    ]
    for index, name in enumerate(names):
        yield about | {"ph": "X", "cat": "python_function", "name": name, "ts": 100.0 + 10 * index}
        yield about | {"ph": "X", "cat": "stack_sample", "name": name, "ts": 200.0 + 10 * index}
    loader = {"dataset": CANARY, "batch_size": 4, "num_workers": 2}
    yield about | {"ph": "i", "cat": "loader", "name": "loader", "s": "t", "ts": 90.0, "args": loader}
    compiled = {"function": CANARY, "guard": f"L['{CANARY}'].shape[0] == 3"}
    yield about | {"ph": "X", "cat": "compile", "name": "compile/forward", "ts": 300.0, "dur": 900.0, "args": compiled}
    held = {"holder": f"self.{CANARY}", "kind": CANARY, "location": f"the attribute {CANARY}", "line": f"{CANARY}.py:3"}
    held |= {"steps": 6, "tensors": 6, "graphs": 0, "bytes": 2**24, "device": 0, "complete": 1}
    yield about | {"ph": "i", "cat": "memory_holder", "name": CANARY, "s": "t", "ts": 91.0, "args": held}
    yield about | {"ph": "X", "cat": CANARY, "name": "aten::relu", "ts": 400.0}
    yield about | {"ph": "b", "cat": CANARY, "name": CANARY, "id": CANARY, "ts": 410.0}
    yield about | {"ph": "e", "cat": CANARY, "name": CANARY, "id": CANARY, "ts": 420.0}
    yield about | {"ph": "C", "name": f"{CANARY} counter", "ts": 430.0, "args": {f"{CANARY}_gib": 1.5, CANARY: 2}}
    yield about | {"ph": "s", "cat": CANARY, "name": CANARY, "id": 77, "ts": 440.0}
    yield about | {"ph": "f", "cat": CANARY, "name": CANARY, "id": 77, "ts": 441.0, "bp": "e"}
    stream = {"stream": 7, "device": 0}
    of_device = {"ph": "X", "cat": f"{CANARY}_kernel", "name": "Memset (Device)", "tid": 7, "ts": 450.0, "args": stream}
    if in_devices:
        yield about | of_device
    for name in ("process_name", "thread_name"):
        yield {"ph": "M", "name": name, "pid": 1, "tid": 1, "args": {"name": CANARY}}
    yield {"ph": "M", "name": "process_labels", "pid": 0, "tid": 0, "args": {"labels": f"GPU 0 {CANARY}"}}


def planted_header(header: dict[str, Any]) -> dict[str, Any]:
    """Return a header with the canary in all texts, keys and notes."""
    kept = {"schemaVersion": 1, "displayTimeUnit": "ms"}
    own = planted({"run_name": "run", "host": "host", "start": "start", "notes": ["A note.", "ends too early"]})
    own |= {key: value for key, value in header.get("kinetoscope", {}).items() if key not in own}
    groups = [{"pg_name": f"{CANARY} group", "pg_desc": CANARY, "ranks": [0, 1]}]
    info = {"backend": CANARY, "pg_config": groups, CANARY: CANARY} | header.get("distributedInfo", {})
    devices = [{"id": device, "name": f"NVIDIA {CANARY}", CANARY: CANARY} for device in range(2)]
    return planted(header | kept) | {"kinetoscope": own, "distributedInfo": info, "deviceProperties": devices} | kept


def plant(path: Path, folder: Path, *, in_devices: bool = True) -> Path:
    """Write a trace with the canary in all its strings and in its file name into a folder.

    Unless ``in_devices``, all device events keep their category: next to an unclassified one there are no findings.
    """
    content = path.read_bytes()
    trace = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    events = [
        planted_event(event, number, in_devices=in_devices) for number, event in enumerate(trace.pop("traceEvents"))
    ]
    latest = max(event["ts"] for event in events if "ts" in event) - 1000
    own = [
        event | ({"ts": latest + event["ts"]} if "ts" in event else {}) for event in own_events(in_devices=in_devices)
    ]
    folder.mkdir(exist_ok=True, parents=True)
    target = folder / f"{CANARY} {path.name.removesuffix('.gz')}"
    target.write_text(json.dumps(planted_header(trace) | {"traceEvents": [*events, *own]}))
    return target


def canaries_in(path: Path) -> list[str]:
    """Return the surroundings of each canary in a file, also in compressed content."""
    found = []
    for content in _unpacked(path.read_bytes()):
        for match in re.finditer(CANARY.encode(), content, re.IGNORECASE):
            found.append(content[max(0, match.start() - 80) : match.end() + 40].decode(errors="replace"))
    return found


def _unpacked(content: bytes) -> Iterator[bytes]:
    yield content
    if content.startswith(b"\x1f\x8b"):
        yield from _unpacked(gzip.decompress(content))
    for match in _BASE64.finditer(content):
        packed = base64.b64decode(match[0][: len(match[0]) // 4 * 4])
        if packed.startswith(b"\x1f\x8b"):
            yield from _unpacked(packed)
