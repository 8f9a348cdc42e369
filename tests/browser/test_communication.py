"""The report's view of communication: which calls took long, and how much of that was waiting."""

from playwright.sync_api import expect

from support.minimal_pages import serious_faults
from trainsim import Fault, Settings


def test_calls_are_listed_by_size_with_skew_bandwidth_and_straggler(analyze_sources, page, open_file):
    late = Fault(kind="late_host", ranks=(1,), cost_ns=4_000_000, every=3)
    open_file(analyze_sources(Settings(num_ranks=3, faults=(late,))), "#view=communication")
    kinds = page.get_by_role("table", name="Calls by group, name and size")
    longest = page.get_by_role("table", name="Each of the longest calls")

    expect(page.locator(".headline")).to_contain_text("% waiting for the last rank")
    first = kinds.get_by_role("row").nth(1)
    for unit in ("all_reduce", "iB", "ms", "%", "iB/s"):
        expect(first).to_contain_text(unit)
    expect(longest.get_by_role("row").nth(1)).to_contain_text("Rank 1")
    page.get_by_role("list", name="Kinds of calls").get_by_role("button").first.focus()
    expect(page.locator(".part-legend")).to_contain_text("all_reduce, group 0, ")
    assert page.locator(".scatter svg[role=img]").count() == 2

    assert serious_faults(page) == []
    page.get_by_role("searchbox").fill("all_gather")
    expect(page.get_by_role("status").first).to_contain_text("0 of")
    longest.get_by_role("button", name="all_reduce").first.click()
    expect(page.locator("main")).to_have_attribute("data-view", "timeline")
    assert "rank=1" in page.evaluate("location.hash")


def test_a_run_of_one_rank_says_what_to_record_to_see_calls(analyze_sources, page, open_file):
    open_file(analyze_sources(Settings(num_ranks=1, has_device=False)), "#view=communication")

    expect(page.locator(".empty")).to_contain_text("traces of all ranks together")
