"""Each kind of finding has a chapter, which the command that the finding names prints."""

import shlex

import pytest

from kinetoscope.analysis.findings.chapters import chapters
from kinetoscope.analysis.findings.faults import KINDS as FAULTS
from kinetoscope.analysis.findings.finding import build_finding
from kinetoscope.cli import main

KINDS = (*FAULTS, "slow_steps", "hang")


def test_each_kind_has_a_chapter_and_each_chapter_is_a_kind():
    assert sorted(chapters()) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_that_a_finding_names_prints_its_chapter(kind, capsys):
    link = build_finding(kind, "", "", confidence="low", evidence={}).link
    command, *arguments = shlex.split(link)
    assert command == "kinetoscope"
    assert main(arguments) == 0
    paragraph = chapters()[kind].partition("\n\n")[0]
    printed, first = capsys.readouterr().out.split(), paragraph.replace("`", "").split()[:12]
    assert printed[: 1 + len(first)] == [kind, *first]
