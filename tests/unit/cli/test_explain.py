"""`kinetoscope explain`: what a kind of finding is, for whoever has installed the package."""

import json
import re

import pytest

from kinetoscope.analysis.findings.chapters import chapters
from kinetoscope.cli import main


def test_without_a_kind_it_lists_all_of_them_with_a_sentence_each(capsys):
    assert main(["explain"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert all(f"{kind}: " in printed for kind in chapters())
    assert "input_bound: The loop waits for the DataLoader" in printed


def test_a_mistyped_kind_is_answered_with_the_nearest_one(capsys):
    assert main(["explain", "stragler"]) == 2
    assert "Did you mean straggler?" in capsys.readouterr().err


def test_a_word_that_is_near_no_kind_is_answered_with_all_kinds(capsys):
    assert main(["explain", "xyz"]) == 2
    said = capsys.readouterr().err
    assert all(kind in said for kind in chapters())


def test_the_chapter_as_json_is_its_text(capsys):
    assert main(["explain", "blocked", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "blocked"
    assert told["text"] == chapters()["blocked"]


@pytest.mark.parametrize("kind", chapters())
def test_a_chapter_leads_to_no_file_that_an_installed_package_lacks(kind, capsys):
    assert main(["explain", kind]) == 0
    assert not re.search(r"\.md\b|\]\(", capsys.readouterr().out)


@pytest.mark.parametrize("kind", chapters())
def test_a_chapter_fits_into_40_columns_and_no_word_of_it_is_cut(kind, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["explain", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert "\N{HORIZONTAL ELLIPSIS}" not in "".join(lines)
