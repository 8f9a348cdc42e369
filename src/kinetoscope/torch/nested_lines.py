"""torch: lines whose spans overlap. A text of lines flows in, one whose spans nest flows out.

Only the spans that overlap, a few in a hundred, are read into Python and go through `kinetoscope.formats.nesting`; the
module in C finds them, and looks again at all when they have changed.
"""

import io
import json
from typing import Any

from kinetoscope.formats.chrome import ChromeWriter, Event
from kinetoscope.formats.nesting import nest
from kinetoscope.torch.packed_text import SEPARATOR, PackedText

_ROUNDS = 8  # each brings in those that overlap only since others were cut: two have been enough so far


def nest_lines(text: PackedText, found: Any) -> PackedText | None:
    """The text with the spans of each track nested; None if that does not come to an end.

    ``found`` are the module's `KinetoLines`, which knows the spans of the text; it is changed with them.
    """
    nester = _Nester(text, found)
    crossing = set(found.crossings())
    for _ in range(_ROUNDS):
        if not crossing:
            return nester.text()
        if crossing <= nester.involved.keys():
            return None
        nester.nest_with(crossing)
        crossing = set(found.crossings())
    return None


class _Nester:
    """Knows the spans that take part, by their index, as they were recorded."""

    def __init__(self, text: PackedText, found: Any) -> None:
        self._text = text
        self._found = found
        self.involved: dict[int, tuple[int, int, int, int]] = {}
        self._changed: dict[int, bytes] = {}
        self._added: list[bytes] = []

    def nest_with(self, crossing: set[int]) -> None:
        """Nests these and all that took part before, from the beginning."""
        for index in crossing - self.involved.keys():
            self.involved[index] = self._found.span(index)
        metadata, events = self._read()
        tids = [event["tid"] for event in events.values()]
        everything = [*metadata, *events.values()]
        num_before = len(everything)
        nest(everything)
        lines = _as_lines([*events.values(), *everything[num_before:]])
        self._changed = dict(zip((self.involved[index][3] for index in events), lines, strict=False))
        self._added = lines[len(events) :]
        for (index, event), tid in zip(events.items(), tids, strict=True):
            self._note(index, event, is_moved=event["tid"] != tid)

    def text(self) -> PackedText:
        """The text with the changed lines, and those of new tracks behind the others."""
        if not self._changed:
            return self._text
        text = self._text.with_lines(self._changed)
        text.add(b"".join(SEPARATOR + line for line in self._added))
        return text

    def _read(self) -> tuple[list[Event], dict[int, Event]]:
        """What is said of processes and threads, and the events that take part by their index."""
        by_place = {span[3]: index for index, span in self.involved.items()}
        places = sorted({*self._found.metadata, *by_place})
        metadata: list[Event] = []
        events: dict[int, Event] = {}
        for place, line in zip(places, self._text.lines_at(places), strict=True):
            if place in by_place:
                begin, end, _, _ = self.involved[by_place[place]]
                events[by_place[place]] = json.loads(line) | {"ts": begin, "dur": end - begin}
            else:
                metadata.append(json.loads(line))
        return metadata, events

    def _note(self, index: int, event: Event, *, is_moved: bool) -> None:
        track = self.involved[index][2]
        if is_moved:
            track = hash((event["pid"], event["tid"])) & (1 << 64) - 1
        self._found.move(index, event["ts"], event["ts"] + event["dur"], track)


def _as_lines(events: list[Event]) -> list[bytes]:
    buffer = io.BytesIO()
    ChromeWriter(buffer, base_ns=0, header={}).write(events)
    return buffer.getvalue().removeprefix(b"\n").split(SEPARATOR)
