"""The report's view of ranks: how their steps differ, who waits for whom, what their devices did."""

import re

import pytest
from playwright.sync_api import expect

from support.minimal_pages import axe_violations
from trainsim import Fault, Settings


@pytest.fixture(scope="module")
def late_rank(analyze_sources):
    """The report of a run in which the others wait for rank 2 in every third step."""
    fault = Fault(kind="late_host", ranks=(2,), cost_ns=4_000_000, every=3)
    return analyze_sources(Settings(num_ranks=4, num_steps=12, faults=(fault,)))


def test_straggler_is_reported_with_its_steps_and_the_waiting_ranks(late_rank, page, open_file):
    open_file(late_rank, "#view=ranks")
    steps, waits = page.get_by_role("application").all()
    details, waited = page.locator("output").all()

    expect(page.get_by_role("combobox")).to_have_value("host")  # what shows why it is late
    expect(page.locator("main")).to_contain_text("Rank 2 delays every 3rd step: slow CPU code")
    steps.focus()
    for rank in (0, 1, 2):
        page.keyboard.press("ArrowDown")
        expect(details).to_contain_text(re.compile(f"Rank {rank}, step 3: .* [mµ]s"))
    expect(details).to_contain_text(re.compile(r": 4\.\d+ ms"))
    waits.focus()
    for rank in (0, 1, 2):
        page.keyboard.press("ArrowRight")
        expect(waited).to_contain_text(f"Rank 0 waited for rank {rank}")
    expect(waited).to_contain_text(re.compile(r": \d.* ms"))

    assert axe_violations(page) == []


def test_gaps_between_windows_are_visible_in_the_map_and_reported(analyze_sources, page, open_file):
    open_file(analyze_sources(Settings(num_ranks=2, num_cycles=2, num_steps=3)), "#view=ranks")
    steps = page.get_by_role("application").first
    details = page.locator("output").first

    steps.focus()
    for column in ("step 3", "step 4", "step 5", "steps that were not recorded", "step 9"):
        page.keyboard.press("ArrowRight")
        expect(details).to_contain_text(f"Rank 0, {column}")


def test_map_has_its_numbers_as_a_table_and_keeps_its_selection(late_rank, page, open_file):
    open_file(late_rank, "#view=ranks&measure=idle")

    expect(page.get_by_role("combobox")).to_have_value("idle")
    page.get_by_role("combobox").select_option("step")
    page.get_by_text("As a table").click()
    table = page.get_by_role("table", name="Each step of each rank")
    expect(table).to_be_visible()
    assert table.get_by_role("columnheader").all_inner_texts()[:3] == ["Rank", "Step", "Step time"]
    assert table.get_by_role("row").count() == 1 + 4 * 12
    page.reload()
    expect(page.get_by_role("combobox")).to_have_value("step")
    page.get_by_role("button", name="Rank 2: ").focus()
    expect(page.locator(".part-legend")).to_contain_text("Idle: waiting for launches")
