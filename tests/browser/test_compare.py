"""The report's view of two runs: what got slower or larger, and how sure that is."""

import pytest
from playwright.sync_api import expect

import kinetoscope
from kinetoscope.pages.html_file import render_page
from kinetoscope.report.page.build import build_page
from support.minimal_pages import serious_faults
from trainsim import Fault, Settings, simulate


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """The report of a run in which Python between operators takes longer than before."""
    reports = []
    for seed, faults in ((0, ()), (3, (Fault(kind="slow_python", cost_ns=40_000), Fault(kind="items", count=3)))):
        folder = tmp_path_factory.mktemp("run")
        simulate(Settings(num_steps=16, seed=seed, faults=faults)).write(folder)
        reports.append(kinetoscope.analyze(folder, cache=False))
    file = tmp_path_factory.mktemp("report") / "report.html"
    page = build_page(reports[1], "0", comparison=kinetoscope.compare(*reports))
    file.write_text(render_page(page), encoding="utf-8")
    return file


def test_slower_rows_come_first_after_the_verdict_on_the_step(comparison, page, open_file):
    open_file(comparison, "#view=compare")
    rows = page.locator("tbody tr")

    expect(page.locator(".headline")).to_contain_text("ms/step")
    expect(page.locator(".headline")).to_contain_text("95 % CI")
    expect(rows.first).to_contain_text("slower")
    expect(rows.first.locator(".whiskers")).to_have_count(1)
    expect(page.locator("main")).to_contain_text("got slower or larger by more than 5 %")

    all_rows = rows.count()
    page.get_by_role("combobox").select_option("same")
    expect(rows.first).to_contain_text("same")
    assert 0 < rows.count() < all_rows
    page.get_by_role("searchbox").fill("peak memory")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("MiB")
    page.reload()
    expect(rows).to_have_count(1)

    assert serious_faults(page) == []
