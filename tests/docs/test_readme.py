"""The code in the documents works as shown, and their links lead somewhere."""

import doctest
import importlib
import json
import re
from pathlib import Path

import pytest

from support.trace_files import trace_json
from support.tutorials import Reader, page_of

ROOT = Path(__file__).parents[2]
MODULES = ["kinetoscope.testing", "kinetoscope.recording.markers.schedule"]


def test_readme_code_profiles_a_real_loop_also_when_run_again(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    model = torch.nn.Linear(4, 2)
    dataset = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
    names = {
        "loader": torch.utils.data.DataLoader(dataset, batch_size=4),
        "model": model,
        "loss_function": torch.nn.functional.cross_entropy,
        "optimizer": torch.optim.SGD(model.parameters()),
    }
    exec(code, names)
    exec(code, names)
    traces = list((tmp_path / "runs").rglob("traces/ep*.json.gz"))  # in one folder if both start in the same second
    assert len(traces) == 2
    for path in traces:
        events = [event["name"] for event in trace_json(path)["traceEvents"]]
        assert events.count("forward") == 11, "one batch of warm-up and ten that are recorded"


def readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_caption_of_the_picture_says_that_its_run_is_simulated():
    source = (ROOT / "docs" / "images" / "make_pictures.py").read_text(encoding="utf-8")
    is_simulated = "simulate(RUN)" in source.partition("def write_report")[2].partition("\ndef ")[0]
    (caption,) = re.findall(r"</picture>\n\n\*(.+)\*\n", readme())
    assert is_simulated
    assert "simulated run" in caption
    ranks, kinds = re.search(r"num_ranks=(\d)", source)[1], re.findall(r'Fault\(kind="(\w+)"', source)
    assert (ranks, kinds[:2]) == ("4", ["slow_loader", "leak"])
    assert all(words in caption for words in ("four GPU ranks", "slow DataLoader", "memory leak"))


def test_prediction_numbers_match_the_last_score_and_the_applied_fixes():
    score = (ROOT / "docs" / "score.md").read_text(encoding="utf-8")
    (total,) = re.findall(r"^\| all \| (.+) \|$", score, re.M)
    num_runs, right, false_high, savings, _, healthy, _ = (cell.replace("/", " of ") for cell in total.split(" | "))
    for number in (right, savings, healthy, f"{false_high} in {num_runs} runs"):
        assert f"| {number} |" in readme()
    page = (ROOT / "docs" / "predicted-vs-measured.md").read_text(encoding="utf-8")
    faults = page.partition("<!-- faults begin -->")[2].partition("<!-- faults end -->")[0]
    rows = [row.split(" | ") for row in re.findall(r"^\| `\w+\.py`.*", faults, re.M)]
    ratios = [float(row[6]) for row in rows if row[6]]
    assert f"| {min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} fixes |" in readme()


def test_the_times_of_spans_are_those_of_the_benchmark():
    times = json.loads((ROOT / "benchmarks" / "results" / "marker_cost.json").read_text())["times_ns"]
    best = {name: time["best"] - times["empty loop"]["best"] for name, time in times.items()}
    active, skipped = (f"| {best[f'marker with, {state}']:.0f} ns |" for state in ("active", "skipped"))
    assert active in readme()
    assert skipped in readme()
    assert f"`record_function` {best['record_function, on'] / 1000:.1f} µs" in readme()


def test_the_output_that_the_readme_shows_is_printed_by_its_commands(tmp_path):
    """In an empty folder, with the files of the tutorial that the README names."""
    pytest.importorskip("torch")
    page, reader = page_of("data-loading"), Reader(tmp_path)
    files = re.findall(r"as `(\w+\.py)`[^\n]*(?:\n[^`\n]*)?:\n\n```python\n(.*?)```", page, re.DOTALL)[:2]
    for name, text in files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    (commands,) = re.findall(r"```sh\n(kinetoscope run.*?)```", readme(), re.DOTALL)
    for command in commands.splitlines():
        reader.follow(f"\n```sh\n{command}\n```\n")
    shown, *_ = re.findall(r"```text\n(.*?)```", readme(), re.DOTALL)
    printed = reader.printed[-1]
    for start in ("slow: 1 rank, 10 of 36 steps profiled, ", "waiting for data ", "Input-bound: the loop waits "):
        assert start in shown
        assert start in printed


def test_the_measurement_that_the_readme_shows_is_the_one_of_its_tutorial():
    measured = readme().split("```text\n")[2].partition("```")[0]
    assert measured in page_of("measure-fix")


def test_the_readme_and_the_changelog_are_short():
    assert len(readme().splitlines()) <= 130
    assert len((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_are_true(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_every_file_that_a_document_links_to_exists():
    documents = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")}
    for document in documents - {*(ROOT / "docs" / "generated").rglob("*.md")}:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
