"""Files to read and merge: Chrome JSON as Kineto writes it, of a given size.

A small training loop is recorded with `kinetoscope.torch`. Its steps are repeated at later times and with new ids,
until the file is as large as asked. So all its text is Kineto's, except those numbers.

    python -m benchmarks.files.traces FOLDER      the file of 200 MB, and the eight ranks of 30 MB each
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import kinetoscope.torch
from benchmarks.torch.work import make_training_step

LARGE_BYTES = 200_000_000
RANK_BYTES = 30_000_000
NUM_RANKS = 8

_NUM_STEPS = 4
_PAUSE_US = 500.0
_ID_ARGS = ("External id", "Record function id", "Sequence number", "Ev Idx")


def write_large_trace(path: Path, size_bytes: int = LARGE_BYTES) -> Path:
    """Write one rank's trace of at least ``size_bytes``; keep a file that is large enough."""
    return write_rank_traces(path.parent, 1, size_bytes, path.name)[0]


def write_rank_traces(
    folder: Path, num_ranks: int = NUM_RANKS, size_bytes: int = RANK_BYTES, name: str = "rank{rank}.pt.trace.json"
) -> list[Path]:
    """Write the traces of ``num_ranks`` ranks, of at least ``size_bytes`` each; keep files that are large enough."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name.format(rank=rank) for rank in range(num_ranks)]
    missing = [rank for rank, path in enumerate(paths) if not path.exists() or path.stat().st_size < size_bytes]
    recorded = _RecordedSteps() if missing else None
    for rank in missing:
        assert recorded is not None
        recorded.write(paths[rank], size_bytes, rank, num_ranks)
    return paths


class _RecordedSteps:
    """A trace of a few steps, split into the text that a file has once and the text that is repeated."""

    def __init__(self) -> None:
        document = _record()
        events = document.pop("traceEvents")
        self._header = document
        self._once = [event for event in events if not _is_repeated(event)]
        repeated = [event for event in events if _is_repeated(event)]
        self._begin_us = min(event["ts"] for event in repeated)
        self._period_us = max(event["ts"] + event.get("dur", 0) for event in repeated) - self._begin_us + _PAUSE_US
        self._num_ids = 1 + max(_find_max_id(event) for event in repeated)
        self._lines = [_compile_event(event) for event in repeated]

    def write(self, path: Path, size_bytes: int, rank: int, num_ranks: int) -> None:
        """Write complete copies of the steps until the file is large enough."""
        info = {"backend": "gloo", "rank": rank, "world_size": num_ranks}
        with path.open("w", encoding="utf-8") as file:
            file.write("{\n")
            for key, value in (self._header | {"distributedInfo": info}).items():
                file.write(f'    "{key}": {json.dumps(value)},\n')
            file.write('    "traceEvents": [\n    ')
            file.write(",".join(_compile_event(event)(0.0, 0) for event in self._once))
            for copy in self._iterate_copies(rank):
                file.write("," + copy)
                if file.tell() >= size_bytes:
                    break
            file.write(f'\n  ],"traceName": "{path.name}" }}')

    def _iterate_copies(self, rank: int) -> Iterator[str]:
        number = 0
        while True:
            shift_us = number * self._period_us + rank * 3.25
            yield ",".join(line(shift_us, number * self._num_ids) for line in self._lines)
            number += 1


def _record() -> dict[str, Any]:
    """Return Kineto's trace of a few steps on the CPU."""
    step = make_training_step()
    with tempfile.TemporaryDirectory(prefix="traces-") as folder:
        path = Path(folder, "trace.json")
        with kinetoscope.torch.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for number in range(_NUM_STEPS):
                with kinetoscope.torch.record_function(f"ProfilerStep#{number}"):
                    step()
        profiler.export_chrome_trace(str(path))
        return json.loads(path.read_text(encoding="utf-8"))


def _is_repeated(event: dict[str, Any]) -> bool:
    return event.get("ph") in ("X", "s", "f", "i") and isinstance(event.get("pid"), int)


def _find_max_id(event: dict[str, Any]) -> int:
    args = event.get("args", {})
    return max(event.get("id", 0), *(args.get(name, 0) for name in _ID_ARGS))


def _compile_event(event: dict[str, Any]) -> Callable[[float, int], str]:
    """Return a function that returns the event's text, with its time and its ids increased."""
    fields = []
    for key, value in event.items():
        if key == "ts":
            fields.append(f'"ts": @TS:{value}@')
        elif key == "args" and isinstance(value, dict):
            members = [
                f'"{name}": @ID:{item}@' if name in _ID_ARGS else f'"{name}": {_format_value(item)}'
                for name, item in value.items()
            ]
            fields.append('"args": {\n      ' + ", ".join(members) + "\n    }")
        elif key == "id" and isinstance(value, int):
            fields.append(f'"id": @ID:{value}@')
        else:
            fields.append(f'"{key}": {_format_value(value)}')
    return _compile_template("\n  {\n    " + ",\n    ".join(fields) + "\n  }")


def _format_value(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else json.dumps(value)


def _compile_template(text: str) -> Callable[[float, int], str]:
    pieces = text.split("@")
    values = [_compile_hole(piece) if number % 2 else None for number, piece in enumerate(pieces)]

    def line(shift_us: float, shift_id: int) -> str:
        return "".join(
            piece if value is None else value(shift_us, shift_id) for piece, value in zip(pieces, values, strict=True)
        )

    return line


def _compile_hole(hole: str) -> Callable[[float, int], str]:
    kind, _, number = hole.partition(":")
    if kind == "ID":
        return lambda _, shift_id, first=int(number): str(first + shift_id)
    return lambda shift_us, _, first=float(number): f"{first + shift_us:.3f}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    print(write_large_trace(target / "large.pt.trace.json"))
    print(*write_rank_traces(target), sep="\n")
