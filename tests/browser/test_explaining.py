"""Explanations on the page, by pointer and keys, and its printed form."""

import pytest
from playwright.sync_api import expect

from support.minimal_pages import assert_accessible, write_page
from trainsim import Fault, Settings


@pytest.fixture(scope="module")
def late_rank(analyze_sources):
    """The report of a run in which the others wait for rank 2 in every third step."""
    fault = Fault(kind="late_host", ranks=(2,), cost_ns=4_000_000, every=3)
    return analyze_sources(Settings(num_ranks=4, num_steps=12, faults=(fault,), has_memory=True))


def test_a_term_says_what_it_means_to_pointer_and_keys_and_escape_closes_that(late_rank, page, open_file):
    open_file(late_rank)
    tooltip = page.get_by_role("tooltip")
    for name, meaning in (
        ("Between steps", "Other time between the end"),
        ("Peak memory", "Most memory allocated at one time"),
    ):
        term = page.get_by_role("button", name=name, exact=True).first
        term.focus()
        expect(tooltip).to_contain_text(meaning)
        expect(term).to_have_attribute("aria-describedby", tooltip.get_attribute("id"))
        assert tooltip.bounding_box()["x"] >= 0
        page.keyboard.press("Escape")
        expect(tooltip).to_have_count(0)
        term.hover()
        expect(tooltip).to_contain_text(meaning)
        page.mouse.move(0, 0)
        expect(tooltip).to_have_count(0)
        term.blur()
    page.get_by_role("button", name="Peak memory", exact=True).first.focus()
    assert_accessible(page)


@pytest.mark.parametrize(
    ("view", "heading", "meaning"),
    [
        ("communication", "Skew", "From the start of the first rank to the start of the last"),
        ("operators", "Self time", "Without the time in operators that they called"),
    ],
)
def test_a_heading_says_what_its_column_means_to_pointer_and_keys(view, heading, meaning, late_rank, page, open_file):
    open_file(late_rank, f"#view={view}")
    tooltip = page.get_by_role("tooltip")
    button = page.get_by_role("columnheader", name=heading).get_by_role("button").first
    button.focus()
    expect(tooltip).to_contain_text(meaning)
    expect(button).to_have_attribute("aria-describedby", tooltip.get_attribute("id"))
    button.blur()
    expect(tooltip).to_have_count(0)
    button.hover()
    expect(tooltip).to_contain_text(meaning)


def test_a_view_without_content_is_a_greyed_tab_with_the_reason(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html"))
    menu = page.get_by_role("navigation", name="Views")
    expect(menu.get_by_role("link", name="Kernels")).to_have_count(0)
    menu.get_by_role("button", name="Kernels").focus()
    expect(page.get_by_role("tooltip")).to_contain_text("No kernels were recorded")
    assert_accessible(page)
    open_file(tmp_path / "page.html", "#view=kernels")
    expect(page.get_by_role("main").get_by_text("On a machine with a GPU")).to_be_visible()


def test_finding_shows_its_explanation_in_place(late_rank, page, open_file):
    open_file(late_rank)
    finding = page.locator(".findings > ol > li", has_text="Straggler: rank 2").first
    explanation = finding.get_by_text("Causes and fixes")
    expect(finding).not_to_contain_text("docs/findings.md")
    explanation.focus()
    page.keyboard.press("Enter")
    expect(finding.get_by_text("Other ranks wait for one rank")).to_be_visible()
    assert_accessible(page)


def test_waiting_is_coloured_from_0(late_rank, page, open_file):
    open_file(late_rank, "#view=ranks&measure=data")
    steps, waits = page.locator(".heat-scale").all()
    expect(steps.locator("span").first).to_have_text("0 ns")
    expect(waits.locator("span").first).to_have_text("0 ns")
    page.get_by_role("combobox").select_option("step")
    expect(steps.locator("span").first).not_to_have_text("0 ns")


def test_printing_has_all_views_that_have_something_and_no_other(late_rank, page, open_file):
    open_file(late_rank, "#view=kernels")
    page.emulate_media(media="print")
    printed = page.locator("main.printed")
    expect(printed).to_have_count(8)
    views = [view.get_attribute("data-view") for view in printed.all()]
    assert views == ["overview", "timeline", "ranks", "communication", "operators", "kernels", "memory", "flame"]
    expect(page.get_by_role("navigation", name="Views")).to_be_hidden()
    assert len(page.pdf(print_background=True)) > 50_000
    page.emulate_media(media="screen")
    expect(page.locator("main")).to_have_count(1)
    expect(page.locator("main")).to_have_attribute("data-view", "kernels")


def test_a_report_with_nothing_in_it_prints_its_overview_only(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html"))
    page.emulate_media(media="print")
    expect(page.locator("main.printed")).to_have_count(1)
    page.emulate_media(media="screen")
