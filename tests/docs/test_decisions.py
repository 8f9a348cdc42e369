"""Form of the records in docs/decisions: title, status, date, sections, and links between them."""

import datetime
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
HEADER = re.compile(
    r"# (?P<number>\d{3}): (?P<title>[^\n]+)\n\n"
    r"\| status \| date \| superseded by \|\n\|---\|---\|---\|\n"
    r"\| (?P<status>accepted|superseded) \| (?P<date>\d{4}-\d\d-\d\d) \| (?P<successor>[^|\n]+) \|\n\n"
    r"## Context\n\n.+\n\n## Decision\n\n.+\n\n## Consequences\n\n.+",
    re.DOTALL,
)


def parse(record: Path) -> re.Match[str]:
    """Return the parts of a record, or fail if it has another form."""
    found = HEADER.fullmatch(record.read_text(encoding="utf-8"))
    assert found, f"{record.name} needs a title, the table of its status, and Context, Decision and Consequences"
    return found


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:3])
def test_a_decision_has_the_form_of_all(record):
    found = parse(record)
    assert record.name.startswith(f"{found['number']}-")
    assert datetime.date.fromisoformat(found["date"])
    assert record.read_text(encoding="utf-8").count("\n## ") == 3


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:3])
def test_a_superseded_decision_links_to_a_later_one_that_names_it(record):
    found = parse(record)
    if found["status"] == "accepted":
        assert found["successor"] == "\N{EN DASH}"
        return
    link = re.fullmatch(r"\[(\d{3})\]\((\1-[a-z0-9-]+\.md)\)", found["successor"])
    assert link, "the last column links to the successor, as [NNN](NNN-title.md)"
    successor = FOLDER / link[2]
    assert link[1] > found["number"]
    assert parse(successor)["date"] >= found["date"]
    assert f"]({record.name})" in successor.read_text(encoding="utf-8").partition("## Decision")[0]


def test_a_successor_and_the_decision_before_it_name_each_other():
    for record in RECORDS:
        context = record.read_text(encoding="utf-8").partition("## Decision")[0].partition("Supersedes ")[2]
        for older in re.findall(r"\]\((\d{3}-[^)]+)\)", context.partition(", which")[0]):
            assert parse(FOLDER / older)["successor"] == f"[{record.name[:3]}]({record.name})"


def test_the_numbers_of_decisions_have_no_gaps():
    assert [record.name[:3] for record in RECORDS] == [f"{number:03}" for number in range(1, len(RECORDS) + 1)]


def test_the_readme_lists_every_decision_with_its_title_date_status_and_successor():
    rows = re.findall(
        r"^\| \[(\d{3}: .+?)\]\((\d{3}-[a-z0-9-]+\.md)\) \| (\S+) \| (.+) \|$",
        (FOLDER / "README.md").read_text(encoding="utf-8"),
        re.M,
    )
    assert rows == [
        (f"{found['number']}: {found['title']}", record.name, found["date"], state)
        for record in RECORDS
        for found in [parse(record)]
        for state in ["accepted" if found["status"] == "accepted" else f"superseded by {found['successor']}"]
    ]
