"""Parts of the documentation's pages: the menu, tabs, questions, terms, and headings of the reference."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
CODE = re.compile(r"^(`{3,}).*?^\1$", re.M | re.S)


def read(page):
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def headings_of(page):
    return re.findall(r"^#+ (.+)$", CODE.sub("", read(page)), re.M)


TOCTREE = re.compile(r"^```\{toctree\}\n:caption: ([^\n]+)\n:hidden:\n\n(.*?)^```", re.M | re.S)
MENU = {caption: pages.split() for caption, pages in TOCTREE.findall(read("index"))}
"""The pages of each caption of the menu."""

EXPLANATIONS = {"how-it-works", "steps", "replay", "clocks", "hangs", "costs", "why-not-torch-profiler"}
REFERENCE = {
    "generated/commands/index",
    "generated/reference/index",
    "generated/findings/index",
    "generated/thresholds",
    "frames",
    "formats",
    "environment",
    "glossary",
}


def test_the_menu_has_tutorials_explanations_and_reference_apart():
    assert {f"tutorials/{path.stem}" for path in (DOCS / "tutorials").glob("*.md")} == {*MENU["Tutorials"]}
    assert {f"how-to/{path.stem}" for path in (DOCS / "how-to").glob("*.md")} == {*MENU["How-to"]}
    assert {*MENU["Explanation"]} >= EXPLANATIONS
    assert {*MENU["Reference"]} >= REFERENCE


def test_the_quickstart_has_a_tab_for_each_way_to_start_a_training_run():
    tabs = re.findall(r"^`+\{tab-item\} (.+)$", read("quickstart"), re.M)
    assert {*tabs} >= {"Script", "Lightning", "Transformers", "accelerate", "torchrun", "Slurm"}


def test_the_faq_answers_the_questions_before_an_installation():
    assert {*headings_of("faq")} >= {
        "What does it cost?",
        "Is it safe in production?",
        "What leaves my machine?",
        "Does it work with my trainer?",
        "Why another profiler?",
    }


def test_the_glossary_defines_each_term_once():
    terms = [term for row in re.findall(r"^\| \*\*(.+?)\*\*", read("glossary"), re.M) for term in row.split(", ")]
    assert len(terms) >= 30
    assert sorted({*terms}) == sorted(terms)


@pytest.mark.parametrize("page", MENU["Tutorials"])
def test_a_tutorial_ends_in_a_measured_gain(page):
    text = read(page)
    assert re.search(r"^kinetoscope (diff|try) ", text, re.M) or "The run on this page is simulated" in text
    assert headings_of(page)[-1] == "What next"


@pytest.mark.parametrize("page", [page for page in MENU["Reference"] if not page.startswith("generated/")])
def test_headings_of_the_reference_name_their_subject(page):
    assert [heading for heading in headings_of(page) if re.match(r"(What|Whether|How|That)\b", heading)] == []
