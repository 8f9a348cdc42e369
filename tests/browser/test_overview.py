"""The report's first view: what to change, and where a step's time goes."""

import re
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from simulated_training import Fault, Settings

_SLOW_LOADER = Fault(kind="slow_loader", cost_ns=3_000_000)
_LATE_RANK = Fault(kind="late_host", ranks=(1,), cost_ns=4_000_000, every=3)


@pytest.fixture(scope="module")
def slow_loader(report_of):
    return report_of(Settings(has_stacks=True, faults=(_SLOW_LOADER,)))


def _assert_accessible(page):
    found = Axe().run(page).response["violations"]
    assert [fault["id"] for fault in found if fault["impact"] in ("serious", "critical")] == []


def test_the_worst_finding_its_source_line_and_its_saving_are_seen_without_a_click(slow_loader, page, open_file):
    open_file(slow_loader)

    first = page.locator(".findings li").first
    assert "The loop waits for its data" in page.locator(".headline").inner_text()
    assert first.locator(".source-line").inner_text().startswith("train.py:")
    assert first.locator(".source-line").bounding_box()["y"] < 800
    assert re.search(r"saves \d+ µs a step, \d+ %", first.inner_text())
    assert re.search(r"Costs a step\s+\d+ µs", first.inner_text())  # what the device waits, not the loop


def test_the_numbers_of_a_rank_and_of_a_step_are_told_to_pointer_and_keys(slow_loader, page, open_file):
    open_file(slow_loader)
    legend = page.locator(".step-picture .part-legend").first
    steps = page.get_by_role("slider")

    expect(legend).to_contain_text("All ranks, on average")
    page.get_by_role("button", name="Rank 1:").hover()
    expect(legend).to_contain_text("Rank 1: ")
    expect(legend).to_contain_text("Waiting for data")

    page.get_by_role("button", name="Rank 1:").click()
    expect(page.get_by_label("Steps of which rank")).to_have_value("1")
    steps.focus()
    for step in (3, 4):
        page.keyboard.press("ArrowRight")
        expect(steps).to_have_attribute("aria-valuetext", re.compile(f"^Step {step}: "))
    expect(legend).to_contain_text("Step 4: ")
    page.reload()
    expect(page.get_by_label("Steps of which rank")).to_have_value("1")


def test_one_click_shows_the_worst_step_of_the_worst_finding_in_the_timeline(slow_loader, page, open_file):
    open_file(slow_loader)

    page.locator(".findings li").first.get_by_role("link", name=re.compile(r"Show step \d+ of rank \d")).click()
    expect(page.locator("main")).to_have_attribute("data-view", "timeline")
    address = page.evaluate("location.hash")
    assert re.search(r"rank=[01]&from=\d+&to=\d+", address) or re.search(r"from=\d+&to=\d+&rank=[01]", address)
    page.go_back()
    expect(page.locator("main")).to_have_attribute("data-view", "overview")


def test_keys_go_to_views_and_a_chosen_theme_is_kept(slow_loader, page, open_file):
    open_file(slow_loader)
    page.emulate_media(color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"

    light = page.evaluate(ground)
    _assert_accessible(page)
    page.get_by_role("button", name="Switch to dark colours").click()
    expect(page.get_by_role("button", name="Switch to light colours")).to_be_visible()
    assert page.evaluate(ground) != light
    _assert_accessible(page)
    page.reload()
    expect(page.get_by_role("button", name="Switch to light colours")).to_be_visible()
    assert page.evaluate(ground) != light

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Overview")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("2")
    expect(page.locator("main")).not_to_have_attribute("data-view", "overview")
    page.keyboard.press("1")
    expect(page.locator("main")).to_have_attribute("data-view", "overview")


def test_a_key_right_after_the_help_has_closed_already_goes_to_a_view(slow_loader, page, open_file):
    open_file(slow_loader)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    # In one task: the browser moves the focus out of what is hidden only with its next frame.
    page.evaluate("""() => {
        const dialog = document.querySelector("dialog");
        const focused = document.activeElement;
        dialog.close();
        focused.dispatchEvent(new KeyboardEvent("keydown", { key: "2", bubbles: true }));
    }""")
    expect(page.locator("main")).not_to_have_attribute("data-view", "overview")


def test_what_a_rank_computes_is_among_the_facts_with_its_share_of_the_peak(report_of, page, open_file):
    open_file(report_of(Settings(num_layers=2, has_shapes=True)))

    facts = page.locator(".run-facts").inner_text()
    assert re.search(r"A rank computes\s+[\d.]+ MFLOP a step, [\d.]+ GFLOP/s", facts)
    assert re.search(r"MFU\s+[\d.]+ % of the devices' peak", facts)


def test_a_run_without_a_device_and_without_a_fault_says_so(report_of, page, open_file):
    settings = Settings(num_ranks=1, has_device=False, step_spans="event/batch", evaluates_every=4)
    open_file(report_of(settings))

    assert "No fault was found" in page.locator(".headline").inner_text()
    assert "no device recorded" in page.locator("header").inner_text()
    assert "Evaluation" in page.locator(".step-picture").inner_text()
    assert "No work of a device was recorded" in page.locator(".run-facts").inner_text()


def test_a_wait_and_the_line_where_the_time_goes_lead_to_their_samples(report_of, page, open_file):
    waits = Fault(kind="blocked", cost_ns=4_000_000)
    settings = Settings(num_ranks=1, has_device=False, has_states=True, has_torch=False, step_spans="event/batch")
    open_file(report_of(replace(settings, faults=(waits,))))
    findings = page.locator(".findings li")
    assert "Largest part of it" not in page.locator(".tiles").inner_text()  # which is not known

    expect(findings.first).to_contain_text("The loop waits in an fsync, for the disk")
    expect(findings.nth(1)).to_contain_text("The loop's time goes to train.py:26")
    findings.first.get_by_role("link", name="More under Flame graph").click()
    expect(page.get_by_label("Calls of")).to_have_value("Python lines, sampled, rank 0")
    expect(page.get_by_role("searchbox")).to_have_value("train.py(21)")
    page.go_back()
    findings.first.get_by_role("link", name=re.compile(r"Show step \d+ of rank 0 in the timeline")).click()
    expect(page.locator("main")).to_have_attribute("data-view", "timeline")
    expect(page.get_by_role("searchbox")).to_have_value("train.py(21)")
