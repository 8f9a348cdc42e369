"""The report's first view: what to change, and where a step's time goes."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from kinetoscope.pages.html_file import render_page
from kinetoscope.report.page.build import build_page
from support.minimal_pages import assert_accessible, reload_until, serious_faults
from trainsim import Fault, Settings, stories
from trainsim.analyses import analyze_cached

_SLOW_LOADER = Fault(kind="slow_loader", cost_ns=3_000_000)
_LATE_RANK = Fault(kind="late_host", ranks=(1,), cost_ns=4_000_000, every=3)


@pytest.fixture(scope="module")
def slow_loader(analyze_sources):
    return analyze_sources(Settings(has_stacks=True, faults=(_SLOW_LOADER,)))


def test_the_worst_finding_its_source_line_and_its_saving_are_seen_without_a_click(slow_loader, page, open_file):
    open_file(slow_loader)

    first = page.locator(".findings > ol > li").first
    assert "Input-bound" in first.locator("h3").inner_text()
    assert re.search(r"The first fix saves \d+ % of the step", page.locator(".hero").inner_text())
    assert first.locator(".source-line").inner_text().startswith("train.py:")
    assert first.locator(".source-line").bounding_box()["y"] < 800
    assert re.search(r"saves \d+ µs per step", first.inner_text())
    first.get_by_text("Evidence, ").click()
    assert re.search(r"Cost per step\s+\d+ µs", first.inner_text())  # what the GPU waits, not the loop


def test_numbers_of_a_rank_and_a_step_are_available_by_pointer_and_keys(slow_loader, page, open_file):
    open_file(slow_loader)
    legend = page.locator(".step-picture .part-legend").first
    steps = page.get_by_role("slider")

    expect(legend).to_contain_text("the slowest: ")
    page.get_by_role("button", name="Rank 1:").hover()
    expect(legend).to_contain_text("Rank 1: ")
    expect(legend).to_contain_text("Waiting for data")

    page.get_by_role("button", name="Rank 1:").click()
    expect(page.get_by_label("Rank of the steps")).to_have_value("1")
    steps.focus()
    for step in (3, 4):  # keys go on where they were, whatever the pointer did
        page.get_by_role("button", name="Rank 0:").hover()
        page.keyboard.press("ArrowRight")
        expect(steps).to_have_attribute("aria-valuetext", re.compile(f"^Step {step}: "))
    page.mouse.move(0, 0)
    expect(legend).to_contain_text("Step 4: ")
    page.reload()
    expect(page.get_by_label("Rank of the steps")).to_have_value("1")


def test_one_click_shows_the_worst_step_of_the_worst_finding_in_the_timeline(slow_loader, page, open_file):
    open_file(slow_loader)

    page.locator(".findings > ol > li").first.get_by_role("link", name=re.compile(r"Show step \d+ of rank \d")).click()
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
    assert serious_faults(page) == []
    page.get_by_role("button", name="Switch to dark colours").click()
    expect(page.get_by_role("button", name="Switch to light colours")).to_be_visible()
    assert page.evaluate(ground) != light
    assert serious_faults(page, runOnly=["cat.color"]) == []
    reload_until(page, "localStorage.length == 1")
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


def test_key_right_after_closing_the_help_switches_views(slow_loader, page, open_file):
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


def test_flops_of_a_rank_are_listed_with_their_share_of_the_peak(analyze_sources, page, open_file):
    open_file(analyze_sources(Settings(num_layers=2, has_shapes=True)))

    facts = page.locator(".run-facts").inner_text()
    assert re.search(r"Compute per rank\s+[\d.]+ MFLOP/step, [\d.]+ GFLOP/s", facts)
    assert re.search(r"MFU\s+<?[\d.]+ % of the GPU's peak", facts)


def test_page_with_an_unclassified_device_does_not_claim_health(page, open_file, tmp_path):
    report = analyze_cached(Settings(num_ranks=1, has_device=False))[1]
    for is_judged in (True, False):
        file = tmp_path / "report.html"
        file.write_text(render_page(build_page(replace(report, findings=[], is_judged=is_judged), "0")))
        open_file(file)
        body = page.locator("body").inner_text()
        assert ("No finding." in body, "No findings, since parts" in body) == (is_judged, not is_judged)


def test_each_time_breakdown_is_one_bar_below_the_step_time_and_throughput(page, open_file, tmp_path):
    report = analyze_cached(Settings(num_ranks=1, reads_loss="never", num_steps=14))[1]
    run = report.run | {"samples_per_s": 1234.0, "tokens_per_s": 5678.0}
    file = tmp_path / "report.html"
    file.write_text(render_page(build_page(replace(report, run=run), "0")), encoding="utf-8")
    open_file(file)

    breakdown = page.get_by_role("region", name="GPU time per step")
    expect(breakdown).to_contain_text(re.compile(r"Compute [\d.]+ [µm]s \d+ %"))
    bar = breakdown.locator(".stack-bar").bounding_box()
    parts = [part.bounding_box()["width"] for part in breakdown.locator(".stack-bar span").all()]
    assert sum(parts) == pytest.approx(bar["width"], abs=2)
    hero = page.locator(".hero")
    expect(hero).to_contain_text("compute-bound (GPU)")
    expect(hero.locator("dl > div").filter(has_text="Throughput per rank")).to_contain_text(
        "5,678 tokens/s, 1,234 samples/s"
    )


def test_a_throughput_that_is_unknown_is_no_key_figure(slow_loader, page, open_file):
    open_file(slow_loader)
    assert "Throughput" not in page.locator(".hero").inner_text()


def test_the_code_of_a_fix_is_copied_whole(analyze_sources, page, open_file):
    open_file(analyze_sources(replace(stories.VALUES_AND_LATE_RANK, faults=stories.VALUES_AND_LATE_RANK.faults[:1])))
    fix = page.locator(".fix").first
    code = fix.locator("code").inner_text()
    assert page.locator(".findings > ol > li").first.inner_text().count(code) == 1
    fix.get_by_role("button", name="Copy").click()
    expect(fix).to_contain_text(re.compile("Copied: 1 line|does not let this page copy"))


def test_axes_have_round_numbers_and_gaps_where_no_step_was_recorded(analyze_sources, page, open_file):
    open_file(analyze_sources(Settings(num_ranks=1, num_cycles=3, num_steps=6)))
    steps = page.locator(".columns")

    scale = [text for text in steps.locator(".columns-scale").inner_text().split("\n") if text]
    assert scale[0] in ("0 ms", "0.0 ms")
    assert all(re.fullmatch(r"[\d.]+ (ms|µs)", text) for text in scale)
    assert steps.locator(".columns-gap").count() == 2
    expect(steps).to_contain_text("In gaps, steps were not recorded.")
    assert {"3", "12", "21"} <= set(steps.locator(".columns-names span").all_inner_texts())  # each window's first
    slider = page.get_by_role("slider")
    slider.focus()
    for step in (3, 4, 5, 6, 7, 8, 12):
        page.keyboard.press("ArrowRight")
        expect(slider).to_have_attribute("aria-valuetext", re.compile(f"^Step {step}: "))
    gap = steps.locator(".columns-gap").first.bounding_box()
    page.mouse.move(gap["x"] + gap["width"] / 2, gap["y"] + 20)
    expect(page.locator(".step-picture .part-legend").first).to_contain_text("Step 8: ")
    assert_accessible(page)


def test_abnormal_ranks_come_first_and_others_are_collapsed(analyze_sources, page, open_file):
    late = Fault(kind="late_host", ranks=(9,), cost_ns=5_000_000, every=2)
    open_file(analyze_sources(Settings(num_ranks=12, num_layers=2, num_steps=8, faults=(late,))))
    ranks = page.get_by_role("list", name="Step time by rank").get_by_role("button")

    expect(ranks.first).to_contain_text("Rank 9")
    assert ranks.count() < 12
    others = page.get_by_role("button", name=re.compile(r"the \d+ other ranks"))
    expect(others).to_have_attribute("aria-expanded", "false")
    others.focus()
    page.keyboard.press("Enter")
    expect(ranks).to_have_count(12)
    expect(others).to_have_attribute("aria-expanded", "true")
    assert page.get_by_label("Rank of the steps").locator("option").all_inner_texts()[1:3] == ["rank 0", "rank 1"]
    assert_accessible(page)


def test_a_run_without_a_device_and_without_a_fault_says_so(analyze_sources, page, open_file):
    settings = Settings(num_ranks=1, has_device=False, step_spans="event/batch", evaluates_every=4)
    open_file(analyze_sources(settings))

    assert "No finding." in page.locator(".hero").inner_text()
    assert "Evaluation" in page.locator(".breakdown").inner_text()
    assert "No GPU work was recorded" in page.locator(".run-facts").inner_text()


def test_wait_and_hot_line_lead_to_their_samples(analyze_sources, page, open_file):
    waits = Fault(kind="blocked", cost_ns=4_000_000)
    settings = Settings(num_ranks=1, has_device=False, has_states=True, has_torch=False, step_spans="event/batch")
    open_file(analyze_sources(replace(settings, faults=(waits,))))
    findings = page.locator(".findings > ol > li")
    breakdown = page.get_by_role("region", name="CPU time per step")
    expect(breakdown).to_contain_text(re.compile(r"Unknown [\d.]+ ms 100 %.*Unknown: forward, backward, optimizer"))

    expect(findings.first).to_contain_text("in fsync")
    expect(findings.nth(1)).to_contain_text("Hot line: train.py:26")
    findings.first.get_by_role("link", name="More under Flame graph").click()
    expect(page.get_by_label("Calls of")).to_have_value("Python lines, sampled, rank 0")
    expect(page.get_by_role("searchbox")).to_have_value("train.py(21)")
    page.go_back()
    findings.first.get_by_role("link", name=re.compile(r"Show step \d+ of rank 0 in the timeline")).click()
    expect(page.locator("main")).to_have_attribute("data-view", "timeline")
    expect(page.get_by_role("searchbox")).to_have_value("train.py(21)")
