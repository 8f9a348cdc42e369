"""report/comparison.py: what is said of two runs, and what is not."""

from dataclasses import replace

from kinetoscope.analysis.compare.compare import compare_reports
from kinetoscope.report.comparison import describe_comparison, format_rows
from support.comparisons import comparison, row
from support.minimal_pages import RUN
from trainsim import Settings
from trainsim.analyses import analyze_cached


def test_no_regression_is_not_claimed_for_a_step_that_may_be_50_percent_slower():
    sentences = " ".join(describe_comparison(comparison(row("step", "typical step", "unsure", 0.5))))
    assert "Nothing" not in sentences
    assert "1 of 1 row are inconclusive: " in sentences
    assert "such as typical step (+50.0 %)" in sentences


def test_small_change_with_a_wide_interval_is_inconclusive():
    step = row("step", "typical step", "same", 0.0, (-0.01, 0.01))
    sentences = " ".join(
        describe_comparison(comparison(step, row("operator", "aten::mm", "unsure", 0.01, (-0.3, 0.4))))
    )
    assert "Nothing" not in sentences
    assert "such as aten::mm (up to +40.0 %)" in sentences


def test_a_change_of_which_nothing_is_known_is_no_number_of_billions():
    step = row("step", "typical step", "same", 0.0, (-0.01, 0.01))
    idle = row("phase", "device_idle", "unsure", 18.0, (-1.0, 9e9))
    sentences = " ".join(describe_comparison(comparison(step, idle)))
    assert "such as GPU idle (more than 10x)" in sentences


def test_no_regression_is_claimed_where_every_row_is_certain():
    sentences = describe_comparison(comparison(row("step", "typical step", "same", 0.0, (-0.01, 0.01))))
    assert sentences[-1] == "Nothing got slower or larger by more than 5 %."


def test_killed_run_is_reported_as_killed():
    killed = RUN | {"state": "killed"}
    sentences = describe_comparison(comparison(row("step", "typical step", "same", 0.0, (-0.01, 0.01)), after=killed))
    assert any(sentence.startswith("After: This run was killed") for sentence in sentences)
    assert not any(sentence.startswith("Before:") for sentence in sentences)


def test_runs_on_different_devices_are_reported():
    _, on_device = analyze_cached(Settings(num_ranks=1))
    _, without = analyze_cached(Settings(num_ranks=1, has_device=False))
    other = replace(on_device, ranks=[replace(row, device_name="NVIDIA H100") for row in on_device.ranks])
    sentences = " ".join(compare_reports(on_device, other).notes)
    assert "The devices differ: before ran on NVIDIA A100-SXM4-80GB, after on NVIDIA H100." in sentences
    assert "after on no device" in " ".join(compare_reports(on_device, without).notes)
    assert "differ" not in " ".join(compare_reports(on_device, on_device).notes)


def test_cells_of_a_row_have_milliseconds_or_mebibytes():
    step = replace(row("step", "typical step", "slower", 0.5, (0.4, 0.6)), before=1.5e6, after=0.25e6)
    memory = replace(row("memory", "peak", "same", 0.0), unit="bytes", before=3 << 20, after=None, change=None)
    cells = [cells[2:6] for cells in format_rows([step, memory])]
    assert cells == [["1.50", "0.250", "+50.0%", "+40.0 +60.0"], ["3.00", "", "", ""]]
