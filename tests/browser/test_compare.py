"""The report's view of two runs: what got slower or larger, and how sure that is."""

import re

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
    for seed, faults in ((0, ()), (3, (Fault(kind="slow_python", cost_ns=40_000), Fault(kind="items", count=50)))):
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

    verdict = page.get_by_label("Verdict")
    expect(verdict).to_contain_text("ms per typical step")
    expect(verdict).to_contain_text("95 % CI")
    expect(rows.first).not_to_be_visible()
    page.get_by_text(re.compile("^All [0-9]+ rows$")).click()
    expect(rows.first).to_contain_text("slower")
    expect(rows.first.locator(".whiskers")).to_have_count(1)
    expect(page.locator("main")).to_contain_text("got slower or larger by more than 5 %")

    all_rows = rows.count()
    page.get_by_role("combobox").select_option("no significant change")
    expect(rows.first).to_contain_text("n.s.")
    assert 0 < rows.count() < all_rows
    page.get_by_role("searchbox").fill("peak memory")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("MiB")
    page.reload()
    expect(rows).to_have_count(1)

    assert serious_faults(page) == []


def test_both_runs_have_bars_of_one_scale_and_the_new_findings_their_fix(comparison, page, open_file):
    open_file(comparison, "#view=compare")

    for side in ("CPU", "GPU"):
        bars = page.get_by_label(f"{side} time per step, before and after").locator(".stack-bar")
        before, after = (bars.nth(index).bounding_box() for index in (0, 1))
        assert before["x"] == after["x"]
        assert before["width"] == after["width"]
    cpu = page.get_by_label("CPU time per step, before and after")
    expect(cpu.locator(".part-changes")).to_contain_text("Python overhead")
    expect(cpu.locator(".verdict.slower").first).to_contain_text("+")
    new = page.locator(".finding-changes .new")
    expect(new).to_contain_text("Host-device sync: ")
    expect(new.get_by_role("button", name="Copy")).to_be_visible()
    expect(page.locator(".finding-changes .fixed")).to_have_count(0)
    page.emulate_media(color_scheme="dark")
    assert serious_faults(page) == []
