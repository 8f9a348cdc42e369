"""The view of modules in a real browser, and the module that filters operators, kernels and the timeline."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from support.minimal_pages import assert_accessible, write_page
from trainsim import Fault, Settings

NUM_STEPS, NUM_RANKS, NUM_LAYERS = 6, 2, 5
A_STEP = re.compile(r"^step \d$")
BLOCKS = "layers.0-4 (5x)"


@pytest.fixture(scope="module")
def report(analyze_sources):
    return analyze_sources(Settings(num_ranks=NUM_RANKS, num_steps=NUM_STEPS, has_modules=True))


def cells(page, row):
    return page.locator("tr", has=page.get_by_role("rowheader", name=row)).locator("td").all_inner_texts()


def shown_rows(page):
    return [text.split("\n")[0].strip("▾▸ ") for text in page.locator("tbody th").all_inner_texts()]


def chip(page):
    return page.locator(".module-chip")


def test_modules_are_a_tree_with_repeated_blocks_folded_that_adds_up(report, page, open_file):
    open_file(report, "#view=modules")
    headings = page.locator("thead th").all_inner_texts()

    assert headings[:5] == ["Module", "Time", "Of step", "Forward", "Backward"]
    assert "Recomputed" not in headings  # no value in any row
    assert cells(page, "Model")[headings.index("Calls") - 1] == "1"
    assert cells(page, BLOCKS)[headings.index("Calls") - 1] == str(NUM_LAYERS)
    outermost = ["Model", "(outside of modules)", "(gradient accumulation)", "(optimizer)"]
    shares = [float(cells(page, name)[1].removesuffix(" %")) for name in (*outermost, "All")]
    assert sum(shares[:-1]) == pytest.approx(shares[-1], abs=1)
    assert_accessible(page)


def test_modules_inside_are_closed_and_opened(report, page, open_file):
    open_file(report, "#view=modules")
    toggle = page.get_by_role("button", name="Modules in Model")
    expect(page.get_by_role("rowheader", name=BLOCKS)).to_be_visible()

    toggle.focus()
    page.keyboard.press("Enter")

    expect(page.get_by_role("rowheader", name=BLOCKS)).to_have_count(0)
    expect(toggle).to_have_attribute("aria-expanded", "false")
    page.get_by_role("button", name="Open all").click()
    expect(page.get_by_role("rowheader", name=BLOCKS)).to_be_visible()


def test_calls_of_the_selected_module_are_below_the_tree(report, page, open_file):
    open_file(report, "#view=modules")
    heading, calls = page.locator("main h2").nth(1), page.get_by_role("table").nth(1).locator("tbody tr")
    of_all, num_all = heading.inner_text(), calls.count()

    page.get_by_role("button", name=BLOCKS, exact=True).click()

    expect(heading).to_contain_text(f" of Model / {BLOCKS}: ")
    assert 0 < calls.count() < num_all
    page.get_by_role("button", name="Show all modules").click()
    expect(heading).to_have_text(of_all)


def test_a_click_on_a_module_filters_operators_and_kernels_until_the_filter_is_removed(report, page, open_file):
    open_file(report, "#view=kernels")
    all_kernels = page.locator("main h2").inner_text()
    page.get_by_role("link", name="Modules").click()
    page.get_by_role("button", name=BLOCKS, exact=True).click()

    expect(chip(page)).to_contain_text(f"Model / {BLOCKS}")
    assert "module=Model.layers.0" in page.url
    page.locator(".module-filter").get_by_role("link", name="Kernels").click()
    heading = page.locator("main[data-view=kernels] h2")
    expect(heading).to_contain_text(f"in {NUM_RANKS * NUM_STEPS * NUM_LAYERS * 5:,} runs")
    assert not page.get_by_text("ncclDevKernel").count()
    assert_accessible(page)
    page.get_by_role("navigation").get_by_role("link", name="Operators").click()
    expect(page.get_by_role("cell", name="aten::linear")).to_be_visible()
    assert not page.get_by_text("aten::_foreach_add_").count()
    page.reload()
    expect(chip(page)).to_be_visible()

    page.get_by_role("button", name="Show all modules").click()

    expect(page.get_by_text("aten::_foreach_add_")).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="Kernels").click()
    expect(heading).to_have_text(all_kernels)
    assert "module" not in page.url


def test_a_module_filters_the_timeline(report, page, open_file):
    open_file(report, "#view=timeline&q=gemm&module=Model.layers.3")
    search = page.locator(".timeline-search [role=status]")
    of_layers = NUM_RANKS * NUM_STEPS * NUM_LAYERS * 3
    expect(search).to_have_text(f"{of_layers}")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Show as table").click()
    table = page.locator(".timeline-panel")
    expect(table.get_by_role("cell", name="gemm").first).to_be_visible()
    assert not table.get_by_role("cell", name=A_STEP).count()

    page.get_by_role("button", name="Show all modules").click()

    expect(table.get_by_role("cell", name=A_STEP).first).to_be_visible()
    expect(chip(page)).to_have_count(0)
    page.get_by_role("searchbox").fill("gemm")
    expect(search).not_to_have_text(f"{of_layers}")


def test_calls_of_modules_are_a_track_that_the_search_finds(report, page, open_file):
    open_file(report, "#view=timeline&q=Model.layers.2")

    expect(page.locator(".timeline-search [role=status]")).to_have_text(f"{NUM_RANKS * NUM_STEPS}")
    assert sum("modules" in label for label in page.locator(".timeline-track").all_inner_texts()) == NUM_RANKS


def test_a_row_of_the_filtered_operators_leads_to_its_calls_within_the_module(report, page, open_file):
    open_file(report, "#view=operators&module=Model.layers.0")
    page.get_by_role("button", name="aten::addmm", exact=True).click()

    expect(page.locator("main[data-view=timeline]")).to_be_visible()
    expect(chip(page)).to_be_visible()
    panel = page.locator(".timeline-panel")
    expect(panel).to_contain_text("aten::addmm")
    expect(panel).to_contain_text(f"ModuleModel / {BLOCKS}")


def test_without_calls_of_modules_the_tab_has_the_reason_and_the_command(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html"), "#view=modules&module=Model")

    page.get_by_role("navigation").get_by_role("button", name="Modules").focus()
    expect(page.get_by_role("tooltip")).to_contain_text("kinetoscope run --modules")
    main = page.get_by_role("main")
    expect(main).to_contain_text("No calls of modules were recorded.")
    expect(main).to_contain_text("kinetoscope run --modules")
    assert_accessible(page)


def test_a_finding_links_to_its_module(analyze_sources, page, open_file):
    fault = Fault(kind="small_kernels", count=300, layer=5)
    run = Settings(seed=1, num_ranks=2, num_steps=12, step_ns=6_000_000, num_layers=8, has_modules=True)
    open_file(analyze_sources(replace(run, faults=(fault,))), "#view=overview")

    page.get_by_role("link", name="Model.layers.5").first.click()

    expect(page.locator(".module-chosen")).to_contain_text("layers.0-7 (8x)")
    expect(page.locator(".module-chosen")).to_contain_text("Model.layers.5 takes")
