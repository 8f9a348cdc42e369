"""`kinetoscope explain`: the list of kinds, an explanation and its details."""

import json
import re

import pytest

from kinetoscope.analysis.findings.explanations import explanations
from kinetoscope.cli import main


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_without_a_kind_it_lists_each_on_one_line(capsys):
    assert main(["explain"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split()[0] for line in lines[: len(explanations())]] == list(explanations())
    assert lines[len(explanations())] == ""
    assert "input_bound            The loop waits for the next batch of its DataLoader." in lines
    assert "DataLoader" not in "".join(line for line in lines if not line.startswith("input_bound"))


def test_with_details_the_list_is_followed_by_the_fields_of_findings(capsys):
    assert main(["explain", "--details"]) == 0
    printed = capsys.readouterr().out
    assert all(kind in printed for kind in explanations())
    assert "max_saving_ns" in printed


@pytest.mark.parametrize("kind", explanations())
def test_an_explanation_has_at_most_25_lines_of_80_columns_and_code_is_not_wrapped(kind, capsys):
    assert main(["explain", kind]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    code = re.findall(r"```\w+\n(.*?)```", "".join(explanations()[kind].first_sections().values()), re.S)
    assert [line for block in code for line in block.splitlines() if line and f"  {line}" not in lines] == []


@pytest.mark.parametrize("kind", explanations())
def test_details_contain_each_section(kind, capsys):
    explanation = explanations()[kind]
    assert main(["explain", kind]) == 0
    short = capsys.readouterr().out
    assert main(["explain", kind, "--details"]) == 0
    whole = capsys.readouterr().out
    assert short.startswith(f"{kind}: {explanation.meaning}\n")
    assert [name for name in explanation.sections if name != "Meaning" and f"{name}:" not in whole] == []
    assert "Detection and limits:" not in short
    assert len(whole) > len(short)


def test_a_mistyped_kind_is_answered_with_the_nearest_one(capsys):
    assert main(["explain", "stragler"]) == 2
    assert "Did you mean straggler?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("contention", "processor_contention"),
        ("launch-bound", "host_bound"),
        ("leak", "memory_growth"),
        ("straggler-rank3", "straggler"),
        ("hot_line-9f3c", "hot_line"),
    ],
)
def test_part_of_a_name_or_an_id_is_answered_with_its_kind(word, kind, capsys):
    assert main(["explain", word]) == 0
    assert capsys.readouterr().out.startswith(f"{kind}: ")


def test_part_of_several_names_is_answered_with_these(capsys):
    assert main(["explain", "memory"]) == 2
    assert "'memory' is part of several kinds of findings: memory_growth, memory_limit." in capsys.readouterr().err


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Write a run whose only finding is input_bound, below ./runs."""
    pytest.importorskip("polars")
    from trainsim import Fault, Settings, simulate

    fault = Fault(kind="slow_loader", cost_ns=6_000_000)
    simulate(Settings(num_ranks=1, num_steps=8, faults=(fault,))).write(tmp_path / "runs" / "slow" / "traces")
    monkeypatch.chdir(tmp_path)
    return "runs/slow"


@pytest.mark.parametrize("is_named", [True, False])
def test_a_number_is_that_of_a_finding_of_the_named_or_newest_run(run, is_named, capsys):
    assert main(["explain", "1", *(["--run", run] if is_named else [])]) == 0
    title, _, explanation, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith("Input-bound: the loop waits ")
    assert explanation.startswith("input_bound: ")


def test_a_number_beyond_the_last_finding_is_answered_with_their_number(run, capsys):
    assert main(["explain", "7"]) == 2
    assert "There is no finding 7: runs/slow has " in capsys.readouterr().err


def test_a_number_without_any_run_is_answered_with_what_to_pass(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "1"]) == 2
    assert "No run in ./runs. Pass the path of a run" in capsys.readouterr().err


def test_a_word_that_is_near_no_kind_is_answered_with_all_kinds(capsys):
    assert main(["explain", "xyz"]) == 2
    error = capsys.readouterr().err
    assert all(kind in error for kind in explanations())


def test_the_explanation_as_json_is_its_text(capsys):
    assert main(["explain", "blocked", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["kind"] == "blocked"
    assert printed["text"] == explanations()["blocked"].text


@pytest.mark.parametrize("kind", explanations())
def test_an_explanation_leads_to_no_file_that_an_installed_package_lacks(kind, capsys):
    assert main(["explain", kind, "--details"]) == 0
    assert not re.search(r"\.md\b|\]\(", capsys.readouterr().out)


@pytest.mark.parametrize("kind", explanations())
def test_an_explanation_fits_into_40_columns_and_no_word_of_it_is_truncated(kind, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["explain", kind, "--details"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert "\N{HORIZONTAL ELLIPSIS}" not in "".join(lines)
