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
