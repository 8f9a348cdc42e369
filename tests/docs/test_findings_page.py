"""docs/findings.md has a chapter for each kind of finding, to which findings link."""

import re
from pathlib import Path

import pytest

from kinetoscope.analysis.findings.faults import KINDS
from kinetoscope.analysis.findings.finding import build_finding

DOCS = Path(__file__).parents[2]


def test_each_kind_has_a_chapter_and_each_chapter_is_a_kind():
    page = (DOCS / "docs" / "findings.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## (.+)$", page, re.M)) == sorted(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_link_of_a_finding_leads_to_its_chapter(kind):
    link = build_finding(kind, "", "", confidence="low", evidence={}).link
    name, _, anchor = link.partition("#")
    assert f"\n## {anchor}\n" in (DOCS / name).read_text(encoding="utf-8")
