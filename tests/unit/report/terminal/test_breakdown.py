"""report/terminal/breakdown.py: a bar and its legend, on any screen."""

import io

import pytest
from rich.console import Console

from kinetoscope.pages.page_data import BreakdownPart
from kinetoscope.report.terminal.breakdown import Breakdown
from kinetoscope.report.terminal.screen import print_trimmed


def part(name, label, time_ms, share):
    return BreakdownPart(part=name, label=label, time_ns=time_ms * 1e6, share=share)


PARTS = [
    part("forward_ns", "forward", 11.3, 0.2),
    part("communication_wait_ns", "waiting for communication", 16.8, 0.3),
    part("backward_ns", "backward", 28.1, 0.5),
]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_an_entry_that_does_not_fit_continues_behind_its_glyph(width):
    out = io.StringIO()
    print_trimmed(Console(file=out, width=width), Breakdown("CPU", PARTS))
    bar, *legend = out.getvalue().splitlines()
    assert len(bar) == width
    assert all(len(line) <= width and line == line.rstrip() for line in legend)
    if width == 40:
        assert [line[5:] for line in legend] == [
            "█ forward 11.3 ms 20 %",
            "▓ waiting for communication 16.8 ms",
            "  30 %",
            "▒ backward 28.1 ms 50 %",
        ]
    assert " ".join("".join(legend).split()).count("%") == len(PARTS)
