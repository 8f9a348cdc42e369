"""The screen of ``kinetoscope diff``: the verdict first, then phases, then findings."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from kinetoscope.analysis.compare.compare import compare_reports
from kinetoscope.analysis.findings.finding import Where, build_finding
from kinetoscope.report.comparison import COLUMNS, UNITS
from kinetoscope.report.terminal.comparison_screen import render_comparison
from kinetoscope.report.terminal.screen import print_trimmed
from support.comparisons import comparison, row
from trainsim import Settings
from trainsim.analyses import analyze_cached


def screen(found, width=160):
    """Return the rows of the table on a screen, as cells, and its last line."""
    out = io.StringIO()
    Console(file=out, width=width).print(render_comparison(found, width, with_details=True))
    lines = out.getvalue().splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("kind "))
    end = next(index for index, line in enumerate(lines) if line.startswith("times in ms"))
    return [re.split(r"\s{2,}", line.strip()) for line in lines[begin + 1 : end]], lines[end].strip()


def test_table_shows_each_row_before_and_after_with_change_and_interval():
    step = row("step", "typical step", "slower", 1.5, (1.4, 1.625))
    small = replace(row("operator", "aten::add", "faster", -0.25), before=400_000.0, after=300_000.0)
    memory = replace(row("memory", "peak", "slower", 9.0), before=3.0 * 2**20, after=30.0 * 2**20, unit="bytes")
    cells, caption = screen(comparison(step, small, memory))
    assert cells == [
        ["step", "typical step", "10.00", "25.00", "+150%", "+140 +162", "slower"],
        ["operator", "aten::add", "0.400", "0.300", "-25.0%", "faster"],
        ["memory", "peak", "3.00", "30.00", "x10", "larger"],
    ]
    assert caption == UNITS


def test_unchanged_rows_fill_the_screen_with_at_least_8_of_them():
    same = [row("operator", f"aten::op{number}", "same", 0.0, (0.0, 0.0)) for number in range(40)]
    slower = [row("kernel", f"kernel{number}", "slower", 0.5, (0.4, 0.6)) for number in range(12)]
    for changed, num_same in ((slower[:2], 14), (slower, 8)):
        cells, caption = screen(comparison(*changed, *same))
        assert [line[0] for line in cells] == ["kernel"] * len(changed) + ["operator"] * num_same
        assert caption == f"{UNITS}; {40 - num_same} more rows: --json has all"


@pytest.mark.parametrize("width", [80, 100, 160])
def test_two_long_names_are_distinguished_on_any_screen(width):
    names = [f"void at::native::elementwise_kernel<4, Functor<{of}>, std::array<char*, 1ul> >(int)" for of in "ab"]
    rows = [row("kernel", name, "slower", 0.5, (0.4, 0.6)) for name in names]
    (one, *numbers), (other, *_) = (line[1:] for line in screen(comparison(*rows), width)[0])
    assert one != other
    assert numbers[-1] == "slower"


@pytest.mark.parametrize("width", [40, 50, 60])
def test_a_narrow_screen_cuts_no_number_and_says_which_columns_it_lacks(width):
    rows = [
        row("operator on device", "aten::convolution_backward", "slower", 1.5, (1.4, 1.625)),
        row("step", "typical step", "unsure", 0.5, (-0.4, 0.6)),
    ]
    whole, _ = screen(comparison(*rows))
    out = io.StringIO()
    Console(file=out, width=width).print(render_comparison(comparison(*rows), width, with_details=True))
    header, *lines = (
        re.split(r"\s{2,}", line.strip()) for line in out.getvalue()[out.getvalue().index("kind ") :].splitlines()
    )
    columns = [COLUMNS.index(name) for name in header if name != "name"]
    for shown, of_wide in zip(lines, whole, strict=False):
        assert [shown[0], *shown[2:]] == [cell for index, cell in enumerate(of_wide) if index in columns]
        assert len(shown[1]) >= 12
    lacks = [name for name in COLUMNS if name not in header]
    assert lacks
    assert all(
        name in re.sub(r"\s+", " ", out.getvalue()).partition("hidden at this width")[2]
        for name in lacks
        if name != "95 % CI, %"
    )


def render(found, *, with_details=False):
    out = io.StringIO()
    print_trimmed(Console(file=out, width=160), render_comparison(found, 160, with_details=with_details))
    return out.getvalue().splitlines()


def test_the_verdict_on_the_step_comes_first_and_operators_only_with_details():
    step = row("step", "typical step", "faster", -0.5, (-0.6, -0.4))
    found = comparison(
        row("operator", "aten::mm", "faster", -0.5, (-0.6, -0.4)), row("phase", "data_wait", "same", 0.0), step
    )
    lines = render(found)
    assert lines[0] == "Faster: 10.00 -> 5.00 ms/step, -50.0 % (95 % CI -60.0 to -40.0 %)"
    assert any("waiting for data" in line for line in lines)
    assert not any("aten::mm" in line for line in lines)
    assert f"{UNITS}; 1 more row: --details" in lines
    assert any("aten::mm" in line for line in render(found, with_details=True))


def test_regressions_are_shown_without_details_too():
    worse = replace(row("operator", "aten::mm", "slower", 0.5, (0.4, 0.6)), is_worse=True)
    assert any("aten::mm" in line for line in render(comparison(row("step", "typical step", "same", 0.0), worse)))


def test_findings_of_one_run_alone_are_fixed_or_new():
    def report(*kinds, confidence="high"):
        _, base = analyze_cached(Settings(num_ranks=1))
        found = [
            build_finding(kind, f"{kind} of it", "", confidence=confidence, evidence={}, cost_ns=1) for kind in kinds
        ]
        return replace(base, findings=found)

    found = compare_reports(report("input_bound", "blocked"), report("blocked", "hot_line"))
    assert [one.kind for one in found.fixed_findings] == ["input_bound"]
    assert [one.kind for one in found.new_findings] == ["hot_line"]
    assert [one["kind"] for one in found.to_dict()["new_findings"]] == ["hot_line"]
    lines = render(found)
    assert lines.index("Fixed: 1 finding") + 1 == lines.index("  input_bound of it")
    assert lines.index("New: 1 finding") + 1 == lines.index("  hot_line of it")
    unsure = compare_reports(report("input_bound"), report("input_bound", confidence="low"))
    assert (unsure.fixed_findings, unsure.new_findings) == ([], [])
    lines = [Where(lines=(f"train.py:{number}",)) for number in (1, 2)]
    moved = [build_finding("hot_line", "t", "", confidence="high", evidence={}, where=where) for where in lines]
    less = compare_reports(replace(report(), findings=moved[:1]), replace(report(), findings=moved[1:]))
    assert (less.fixed_findings, less.new_findings) == ([], [])
    unjudged = compare_reports(report("input_bound"), replace(report(), is_judged=False))
    assert unjudged.fixed_findings == []


@pytest.mark.parametrize("verdict", ["slower", "faster", "new", "gone"])
def test_a_module_that_changed_is_shown_without_details(verdict):
    same = row("module", "GPT.layers.0-10.mlp", "same", 0.0)
    lines = render(comparison(row("module on device", "GPT.layers.11.mlp", verdict, 0.5), same))
    assert any("GPT.layers.11.mlp" in line for line in lines)
    assert not any("GPT.layers.0-10.mlp" in line for line in lines)
