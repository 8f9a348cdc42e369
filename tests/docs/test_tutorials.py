"""The tutorials work as a reader does them: files saved, and commands run, in the order of the page."""

import os
import re

import pytest

from support.tutorials import ROOT, Reader, page_of

pytest.importorskip("torch")

NUMBER = re.compile(r"\d[\d,.]*")
IN_FULL = pytest.mark.skipif(
    "KINETOSCOPE_LONG_TESTS" not in os.environ, reason="in make test-long: a busy machine finds more"
)


def without_numbers(text):
    """Return a text on one line, with a sign in place of each number: times differ from machine to machine."""
    return NUMBER.sub("#", " ".join(text.split()))


def findings(summary):
    """Return the findings that a summary prints, each on one line: the title, saving and confidence, then its fix."""
    rows = re.search(r"^ +Findings .*?\n(.*?)^(?:Savings do|Evidence:|\d+ more finding)", summary, re.M | re.S)
    return [" ".join(row.split()) for row in re.split(r"^\d+  ", rows[1], flags=re.M)[1:]] if rows else []


def follow(page, folder):
    """Return the screens of a reader who follows the page in this folder."""
    reader = Reader(folder)
    reader.follow(page)
    return reader


def line_of(page, text):
    """On which line of the page's first file a text is."""
    code = re.search(r"```python\n(.*?)```", page, re.S)[1].splitlines()
    return next(number for number, line in enumerate(code, 1) if text in line)


def findings_but_of_the_machine(summary):
    """On a busy machine another finding may come first, as the pages say."""
    return [finding for finding in findings(summary) if not finding.startswith("CPU contention")]


def check_lines_shown(reader, *begins):
    """The page shows lines that begin so, and they were printed, but for their numbers."""
    printed = without_numbers("\n".join(reader.printed))
    lines = [line.strip() for text in reader.shown for line in text.splitlines()]
    for begin in begins:
        shown = [without_numbers(line) for line in lines if line.startswith(begin)]
        assert [line in printed for line in shown] == [True] * max(len(shown), 1), begin


def loss_in(printed):
    return re.search(r"^loss: .*$", printed, re.M)[0]


@IN_FULL
@pytest.mark.timeout(600)
def test_slow_dataset_is_found_by_its_line_and_fixed_with_equal_loss(tmp_path):
    page = page_of("data-loading")
    reader = follow(page, tmp_path)
    run, summary, chapter, _, rerun, fixed_output, comparison = reader.printed
    found = findings_but_of_the_machine(summary)
    assert found[0].startswith("Input-bound: ")
    assert f"readings.py:{line_of(page, 'float(text)')}" in found[0]
    assert "kinetoscope explain input_bound" in summary
    assert chapter.startswith("input_bound")
    assert "readings.py" not in "".join(findings(fixed_output))
    assert (tmp_path / "runs" / "slow" / "report.html").stat().st_size > 100_000
    assert loss_in(run) == loss_in(rerun)
    assert "after:  fixed, 1 rank, " in comparison
    assert comparison.startswith("Faster: ")
    begins = "loss: ", "Kinetoscope: 1 window", "All 36 steps"
    check_lines_shown(reader, *begins, "before: slow", "after: ")


@IN_FULL
@pytest.mark.timeout(600)
def test_memory_leak_is_found_by_name_and_line_and_fixed_with_equal_losses(tmp_path):
    page = page_of("memory-growth")
    reader = follow(page, tmp_path)
    run, summary, _, rerun, comparison, fixed_output = reader.printed
    found = findings_but_of_the_machine(summary)
    assert found[0].startswith("Memory leak: +4.0 MiB/step, retained by history")
    assert f"train.py:{line_of(page, 'history.append')}" in found[0]
    assert "kinetoscope explain memory_growth" not in fixed_output
    assert fixed_output.rstrip().endswith("0 bytes")
    assert re.search(r"^peak memory .* smaller *$", comparison, re.M)
    assert (tmp_path / "runs" / "growing" / "report.html").stat().st_size > 100_000
    assert loss_in(run) == loss_in(rerun)
    begins = "loss: ", "Kinetoscope: 1 window", "All 64 steps", "before: growing", "after: ", "rank  device"
    check_lines_shown(reader, *begins)


@IN_FULL
@pytest.mark.timeout(600)
def test_the_slow_layer_is_found_by_its_name_and_fixed_with_equal_loss(tmp_path):
    reader = follow(page_of("find-the-layer"), tmp_path)
    run, summary, modules, _, rerun, comparison, fixed_output = reader.printed
    # On a busy machine each block has a row of its own, the slow one first.
    assert re.search(r"^Model\.layers\.3 takes \d\d|^  layers\.3 ", modules, re.M)
    assert re.search(r"^  layers\.(\S+)", modules, re.M)[1] in ("3", "0-5")
    small = [finding for finding in findings(summary) if finding.startswith("Small operators: ")]
    assert [("In Model.layers.3.mlp" in finding) for finding in small] == [True] * len(small)
    assert not re.search(r"^Model\.layers\.3 takes \d\d", fixed_output, re.M)
    assert (tmp_path / "runs" / "slow" / "report.html").stat().st_size > 100_000
    assert comparison.startswith("Faster: ")
    assert loss_in(run) == loss_in(rerun)
    check_lines_shown(reader, "loss: ", "Kinetoscope: 1 window", "before: slow", "after: ")


@IN_FULL
@pytest.mark.timeout(600)
def test_straggler_is_found_by_its_line_and_fixed_with_equal_loss(tmp_path):
    page = page_of("straggler")
    reader = follow(page, tmp_path)
    run, summary, _, rerun, comparison, fixed_output = reader.printed
    found, slow_line = findings_but_of_the_machine(summary), f"train.py:{line_of(page, 'for weight in row')}"
    assert found[0].startswith("Straggler: rank 0 ")
    assert "kinetoscope explain straggler" in summary
    assert slow_line in found[0]
    # It is on the same line of the fixed file. The rest is as on the page: noise, on a busy machine.
    assert slow_line not in "".join(findings(fixed_output))
    assert "after:  fixed, 2 ranks, " in comparison
    assert comparison.startswith("Faster: ")
    assert (tmp_path / "runs" / "late" / "report.html").stat().st_size > 100_000
    assert loss_in(run) == loss_in(rerun)
    check_lines_shown(reader, "loss: ", "Kinetoscope: 1 window", "All 64 steps", "before: late", "after: ")


@IN_FULL
@pytest.mark.timeout(600)
def test_the_slow_stage_is_found_and_balanced_stages_are_faster_with_the_same_loss(tmp_path):
    reader = follow(page_of("pipeline"), tmp_path)
    run, summary, _, fixed_run, comparison, _ = reader.printed
    found = findings_but_of_the_machine(summary)
    assert found[0].startswith("Straggler: stage 1 (rank 1) delays every step by")
    assert "Move layers from it to other stages" in found[0]
    assert comparison.startswith("Faster: ")
    assert (tmp_path / "runs" / "unbalanced" / "report.html").stat().st_size > 100_000
    assert loss_in(run) == loss_in(fixed_run)
    check_lines_shown(reader, "loss: ", "Kinetoscope: 1 window", "All 48 steps", "before: unbalanced", "after: ")


@IN_FULL
@pytest.mark.timeout(900)
def test_fix_is_measured_before_it_is_made(tmp_path):
    reader = follow(page_of("measure-fix"), tmp_path)
    run, summary, tried, measured, rerun = reader.printed
    assert findings_but_of_the_machine(summary)[0].startswith("Input-bound: ")
    assert "kinetoscope try --run runs/slow --fix " in summary
    assert re.search(r"^num_workers=8 .* -\d.* % .* faster ", tried, re.M)
    assert "\n  DataLoader(..., num_workers=8)\n" in tried
    assert "Measured: num_workers=8 changes the step by -" in " ".join(measured.split())
    assert loss_in(run) == loss_in(rerun)
    check_lines_shown(reader, "Measure a fix: ", "num_workers=8: ", "To make the best gain permanent", "DataLoader(")


@pytest.mark.timeout(600)
def test_whatif_prediction_for_the_simulated_device_matches_its_fixed_run(tmp_path):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    reader = follow(page_of("waiting-device"), tmp_path)
    _, summary, _, changes, fix, _, fixed_output = reader.printed
    (finding,) = findings(summary)
    assert finding.startswith("Launch-bound: ")
    assert "kinetoscope explain host_bound" in summary
    assert "No finding." in fixed_output
    predicted, measured = predicted_ms(fix), float(re.search(r"steps, ([\d.]+) ms/step", fixed_output)[1])
    assert predicted == predicted_ms(changes)
    assert measured == pytest.approx(predicted, rel=0.03)
    assert (tmp_path / "runs" / "waiting" / "report.html").stat().st_size > 100_000
    # A simulated run is the same everywhere, so the page shows what is printed, with its numbers.
    printed = " ".join("\n".join(reader.printed).split())
    assert [text for text in reader.shown if " ".join(text.split()) not in printed] == []


def predicted_ms(changes):
    """Return the step without the first change, as `whatif` prints it."""
    return float(re.search(r"(?:free kernel launches|without finding 1: .*?) +([\d.]+) +[\d.]+ +[\d.]+%", changes)[1])
