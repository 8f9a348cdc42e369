"""report/what_if.py: how long a step would take, on a screen."""

import io
import re
from types import SimpleNamespace

from rich.console import Console

from kinetoscope.analysis.what_if import WhatIf
from kinetoscope.report.what_if import describe_change, render_what_ifs

MS = 1_000_000
REPORT = SimpleNamespace(graph=None, run={"step_ns": 1250 * MS, "all_steps": None})


def without(cause, step_ns, saving_ns):
    return WhatIf(
        without=(cause,),
        faster=(),
        on_time=(),
        fix=None,
        step_ns=step_ns,
        step_after_ns=step_ns - saving_ns,
        saving_ns_per_step=saving_ns,
    )


def test_long_names_of_a_change_keep_both_ends():
    assert describe_change([], [("a" * 100 + "end", 2.0)], []) == f"{'a' * 30}…{'a' * 26}end 2x faster"


def test_each_line_has_the_step_after_the_change_what_it_saves_and_its_share():
    out = io.StringIO()
    found = [without("gc", 1250 * MS, 25 * MS), without("data", 1250 * MS, 500 * MS)]
    Console(file=out, width=100).print(render_what_ifs(REPORT, found))
    lines = [re.split(r"\s{2,}", line.strip()) for line in out.getvalue().splitlines()]
    assert lines[:4] == [
        ["step ms", "saves ms"],
        ["as recorded", "1,250.0"],
        ["no wait for data", "750.0", "500.0", "40.0%"],
        ["no GC pauses", "1,225.0", "25.0", "2.0%"],
    ]


def test_a_step_without_recording_is_named_where_it_differs():
    out = io.StringIO()
    run = REPORT.run | {"all_steps": {"unrecorded_ns": 1000 * MS}}
    Console(file=out, width=200).print(
        render_what_ifs(SimpleNamespace(graph=None, run=run), [without("gc", 1250 * MS, 0)])
    )
    assert "Without recording, a step takes 1,000.0 ms: savings of findings are of that step." in out.getvalue()


def test_saving_of_a_microsecond_step_has_nonzero_digits():
    out = io.StringIO()
    Console(file=out, width=100).print(render_what_ifs(REPORT, [without("gc", 40_000, 2_000)]))
    assert "0.038" in out.getvalue()
    assert "0.002" in out.getvalue()
