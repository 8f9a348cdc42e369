"""Time breakdown of a step as a stacked bar, with its legend."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.text import Text

from kinetoscope.core.text.wording import format_ms
from kinetoscope.pages.page_data import BreakdownPart
from kinetoscope.report.labels import PART_COLOURS
from kinetoscope.report.terminal.screen import render_hanging

MIN_SHOWN_SHARE = 0.01
"""Parts of less of a step are one entry together, unless details are wanted."""

_GLYPHS, _ASCII_GLYPHS = "█▓▒░", "#=+-."
"""Without colours, adjacent parts differ by their glyphs."""

_LABEL_WIDTH, _GAP = 5, 3
_OTHER = "other"


@dataclass(frozen=True)
class Breakdown:
    """A rich renderable: a bar whose parts are as long as their shares of the step, and each part's time and share."""

    label: str
    """The side: CPU or GPU."""
    parts: Sequence[BreakdownPart]
    """Parts with time, in the order of a step."""
    unknown: str = ""
    """Phases whose time is unknown."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        has_colours = console.color_system is not None and not console.no_color
        glyphs = _ASCII_GLYPHS if options.ascii_only else _GLYPHS[:1] if has_colours else _GLYPHS
        marked = [
            (part, glyphs[index % len(glyphs)], _find_style(part) if has_colours else "")
            for index, part in enumerate(self.parts)
        ]
        yield _render_bar(self.label, marked, options.max_width)
        entries = [Text.assemble((glyph, style), f" {_describe(part)}") for part, glyph, style in marked]
        yield from _wrap_entries([*entries, *([Text(self.unknown)] if self.unknown else [])], options.max_width)


def shown_parts(parts: Sequence[BreakdownPart], *, with_all: bool = False) -> list[BreakdownPart]:
    """Return the parts, those below `MIN_SHOWN_SHARE` added up in one unless ``with_all``."""
    small = [part for part in parts if not with_all and abs(part.share or 0) < MIN_SHOWN_SHARE]
    if len(small) < 2:
        return [*parts]
    times, shares = [part.time_ns or 0 for part in small], [part.share or 0 for part in small]
    other = BreakdownPart(part="unknown_ns", label=_OTHER, time_ns=sum(times), share=sum(shares), is_phase=False)
    return [*(part for part in parts if part not in small), other]


def _render_bar(label: str, marked: Sequence[tuple[BreakdownPart, str, str]], width: int) -> Text:
    line = Text(f"{label:<{_LABEL_WIDTH}}", style="bold")
    positive = [(part.time_ns or 0.0, glyph, style) for part, glyph, style in marked if (part.time_ns or 0.0) > 0]
    total_ns, bar_width, drawn, end_ns = sum(time_ns for time_ns, _, _ in positive), width - _LABEL_WIDTH, 0, 0.0
    for time_ns, glyph, style in positive:
        end_ns += time_ns
        length = (
            round(bar_width * end_ns / total_ns) - drawn
        )  # cumulative, so that rounding never changes the bar's length
        drawn += length
        line.append(glyph * length, style=style or "not bold")
    return line


def _wrap_entries(entries: Sequence[Text], width: int) -> RenderResult:
    """Yield entries side by side, as many as fit on a line; an entry that is too long continues behind its glyph."""
    line = Text(" " * _LABEL_WIDTH)
    for entry in entries:
        if len(entry) > width - _LABEL_WIDTH:
            if len(line) > _LABEL_WIDTH:
                yield line
            yield Padding(render_hanging(entry[:2], entry[2:]), (0, 0, 0, _LABEL_WIDTH))
            line = Text(" " * _LABEL_WIDTH)
            continue
        is_first = len(line) == _LABEL_WIDTH
        if not is_first and len(line) + _GAP + len(entry) > width:
            yield line
            line, is_first = Text(" " * _LABEL_WIDTH), True
        line.append_text(entry if is_first else Text.assemble(" " * _GAP, entry))
    if len(line) > _LABEL_WIDTH:
        yield line


def _find_style(part: BreakdownPart) -> str:
    return PART_COLOURS.get(part.part, PART_COLOURS["unknown_ns"])


def _describe(part: BreakdownPart) -> str:
    share = "" if part.share is None else f" {_format_percent(part.share)}"
    return f"{part.label} {format_ms(part.time_ns)} ms{share}"


def _format_percent(share: float) -> str:
    return "<1 %" if 0 < abs(share) < MIN_SHOWN_SHARE / 2 else f"{100 * share:.0f} %"
