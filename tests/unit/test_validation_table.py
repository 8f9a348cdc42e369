"""support/validation: judgments of findings by measurements, and the tables of docs/predicted-vs-measured.md."""

from dataclasses import replace

import pytest

from kinetoscope.analysis.findings.finding import build_finding
from kinetoscope.analysis.findings.measured_gains import Measured
from kinetoscope.formats.experiments import AppliedVariant, ExperimentRow
from support.validation.table import DOCUMENT, write_row
from support.validation.tried_programs import NAMES, PROGRAMS, choose_finding, judge

PAGE = """Before.
<!-- programs begin -->
| program | step | date | machine |
|---|---|---|---|
| `old.py` | 1.0 | 2026-01-01 | elsewhere |
| `first.py` | 2.0 | 2026-01-01 | elsewhere |
| `second.py` | 3.0 | 2026-01-01 | elsewhere |
<!-- programs end -->
After.
"""


def test_a_measured_program_replaces_its_row_and_others_stay(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    write_row("programs", "first.py", ["2.5"], ["third.py", "second.py", "first.py"], page)
    write_row("programs", "third.py", ["a | b"], ["third.py", "second.py", "first.py"], page)
    before, *rows, after = page.read_text().splitlines()[:1] + page.read_text().splitlines()[4:]
    assert (before, after) == ("Before.", "After.")
    assert [row.partition(" | 20")[0] for row in rows] == [
        "| `third.py` | a / b",
        "| `second.py` | 3.0",
        "| `first.py` | 2.5",
        "<!-- programs end -->",
    ]
    assert rows[1].endswith("2026-01-01 | elsewhere |")


def test_the_page_has_each_table_and_no_program_that_is_gone():
    text = DOCUMENT.read_text(encoding="utf-8")
    for section in ("faults", "healthy", "programs"):
        assert text.count(f"<!-- {section} begin -->\n| ") == text.count(f"<!-- {section} end -->") == 1
    assert sorted(path.stem for path in PROGRAMS.glob("*.py")) == sorted(NAMES)


def finding(predicted, kind="input_bound"):
    made = build_finding(kind, "A title", "Do that.", confidence="high", evidence={})
    return replace(made, saving_share=predicted)


def row(verdict, change):
    return ExperimentRow(
        variants=[AppliedVariant("num_workers", 2)], verdict=verdict, reason="", code="", change=change
    )


@pytest.mark.parametrize(
    ("predicted", "verdict", "interval", "judgment"),
    [
        (0.40, "faster", (-0.45, -0.38), "right"),
        (0.34, "faster", (-0.45, -0.38), "right"),
        (0.20, "faster", (-0.45, -0.38), "right, gains more than predicted"),
        (0.60, "faster", (-0.45, -0.38), "gains less than predicted"),
        (None, "faster", (-0.45, -0.38), "right, without a prediction"),
        (0.30, "slower", (0.1, 0.2), "misleading: the best variant makes it slower"),
        (0.30, "same", (-0.01, 0.01), "misleading: the best variant changes nothing"),
        (0.02, "same", (-0.01, 0.01), "no significant change"),
        (0.30, "unsure", (-0.2, 0.2), "inconclusive"),
    ],
)
def test_a_finding_is_judged_by_its_best_variant(predicted, verdict, interval, judgment):
    change = sum(interval) / 2
    measured = Measured(variant="num_workers=2", change=change, interval=interval, verdict=verdict, results=None)
    found = replace(finding(predicted), measured=measured)
    assert judge(found, [row(verdict, change)]) == judgment


@pytest.mark.parametrize(
    ("found", "rows", "judgment"),
    [
        (None, [row("faster", -0.2)], "missed: num_workers=2 gains"),
        (None, [row("same", 0.0)], "right: no variant gains"),
        (finding(0.2, "blocked"), [row("same", 0.0)], "no variant fixes it"),
        (finding(0.2), [], "not measured: the time was over"),
    ],
)
def test_without_a_measured_finding_the_judgment_gives_the_reason(found, rows, judgment):
    assert judge(found, rows) == judgment


def test_the_finding_that_is_judged_can_be_fixed_by_a_variant():
    blocked, input_bound = finding(0.5, "blocked"), finding(0.1)
    assert choose_finding([blocked, input_bound]) is input_bound
    assert choose_finding([blocked]) is blocked
    assert choose_finding([]) is None
