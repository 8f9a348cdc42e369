"""The list of runs: columns, groups, comparisons, reports, sorting and filters."""

import os
import re
import shutil
import time
from contextlib import contextmanager

import pytest

from kinetoscope import JSONTraceHandler, Profiler
from kinetoscope.core.paths.run_groups import store_command_hash
from support.minimal_pages import axe_violations
from support.tools.uniform_bands import find_wide_bands, measure_bands
from support.view_pages import SCHEDULE_SAID, WAIT_MS, names
from support.view_server import MAX_WAIT_S, served
from trainsim import Fault, Settings, simulate


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Two runs of one model: the second one waits for its data."""
    folder = tmp_path_factory.mktemp("simulated")
    faults = (Fault(kind="slow_loader", cost_ns=3_000_000),)
    simulate(Settings(num_ranks=2, num_steps=12)).write(folder / "before" / "traces")
    simulate(Settings(num_ranks=2, num_steps=12, faults=faults)).write(folder / "after" / "traces")
    for place, moment in (("before", 1_790_000_000), ("after", 1_790_003_600)):
        for file in (folder / place / "traces").iterdir():
            os.utime(file, (moment, moment))
    return folder


@contextmanager
def analysed_copy(simulated, place):
    """A server with its processes beside it, and an empty cache; and the folder of its runs."""
    shutil.copytree(simulated, place / "all")
    (place / "made").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        for run in ("before", "after"):
            store_command_hash(place / "all" / run, ["python", "train.py"])
        with served(place / "all", works_in=place / "made") as server:
            yield server, place / "all"


@pytest.fixture
def analysed(simulated, tmp_path):
    """Copy the runs as `analysed_copy` does, for tests that change runs or check unknown values."""
    with analysed_copy(simulated, tmp_path) as server_and_folder:
        yield server_and_folder


@pytest.fixture(scope="module")
def analysed_once(simulated, tmp_path_factory):
    """The same server for all tests that only look at what is known of its runs in the end."""
    with analysed_copy(simulated, tmp_path_factory.mktemp("once")) as (server, _):
        yield server


def cells(tab, run):
    """Return the cells of a row by the titles of the columns."""
    row = tab.get_by_role("row").filter(has=tab.get_by_role("link", name=run, exact=True))
    table = "row.closest('table').querySelectorAll('thead th')"  # in one request: a column may come meanwhile
    titles, texts = row.evaluate(f"row => [{table}, row.cells].map(cells => [...cells].map(cell => cell.innerText))")
    return dict(zip((title.strip(" ▲▼") for title in titles), texts, strict=True))


def wait_for_cell(tab, run, title, text):
    until = time.monotonic() + MAX_WAIT_S
    while text not in cells(tab, run)[title]:
        assert time.monotonic() < until, cells(tab, run)
        tab.wait_for_timeout(50)


def test_unknown_values_are_blank_until_a_background_process_computes_them(analysed, tab):
    server, _ = analysed
    tab.goto(server.link)
    first = cells(tab, "after")
    assert {first[title] for title in ("Step time", "Change", "Memory")} == {""}
    assert not {"State", "Devices", "MFU", "Trend"} & {*first}  # as long as no run is known to have one
    wait_for_cell(tab, "after", "Top finding", "Input-bound")
    known = cells(tab, "after")
    assert known["Ranks"] == "2"
    assert known["Steps"] == "12"
    assert known["Devices"] == "A100-SXM4-80GB"
    assert re.fullmatch(r"\d\.\d\d ms", known["Step time"])
    assert re.fullmatch(r"\d+ MiB", known["Memory"])
    wait_for_cell(tab, "after", "Change", "+")
    assert cells(tab, "before")["Change"] == ""
    assert cells(tab, "before")["Top finding"] == "none"


def test_two_selected_runs_open_their_comparison_and_a_third_replaces_the_first(analysed, tab):
    server, folder = analysed
    shutil.copytree(folder / "before", folder / "third")
    store_command_hash(folder / "third", ["python", "train.py"])
    tab.goto(server.link)
    for name in ("third", "after"):
        tab.get_by_role("checkbox", name=f"Compare {name}").check()
    tab.get_by_role("checkbox", name="Compare before").check()
    assert not tab.get_by_role("checkbox", name="Compare third").is_checked()
    tab.get_by_role("link", name="Compare before with after").click()
    tab.get_by_role("heading", name="Making after compared with before").wait_for(timeout=WAIT_MS)
    tab.locator(".verdict").first.wait_for(timeout=WAIT_MS)
    assert not [path for path in folder.rglob("*") if path.suffix == ".html"], "nothing is written beside the runs"


def test_runs_of_another_group_cannot_be_ticked_with_one(analysed, tab):
    server, folder = analysed
    shutil.copytree(folder / "before", folder / "third")
    tab.goto(server.link)
    third = tab.get_by_role("checkbox", name="Compare third")
    assert third.is_enabled()
    tab.get_by_role("checkbox", name="Compare after").check()
    assert third.is_disabled()
    assert "kinetoscope diff" in third.get_attribute("title")
    assert tab.get_by_role("checkbox", name="Compare before").is_enabled()
    tab.get_by_role("checkbox", name="Compare after").uncheck()
    assert third.is_enabled()


def test_the_trend_of_a_group_is_in_the_list_and_on_the_page_of_a_run(analysed_once, tab):
    tab.goto(analysed_once.link)
    line = tab.get_by_role("img", name=re.compile("^Step time of 2 runs: "))
    line.wait_for(timeout=WAIT_MS)
    tab.get_by_role("link", name="before", exact=True).click()
    trend = tab.locator(".trend tbody tr")
    assert [row.split()[0] for row in trend.all_inner_texts()] == ["before", "after"]
    assert trend.nth(0).get_attribute("aria-current") == "true"
    assert "slower" in trend.nth(1).locator(".change-link").get_attribute("class")
    assert axe_violations(tab) == []


def test_step_times_of_all_runs_are_columns_that_lead_to_their_pages(analysed_once, tab):
    tab.goto(analysed_once.link)
    steps = tab.get_by_role("slider", name="Step time of each run")
    steps.focus()
    for name in ("before", "after"):
        tab.keyboard.press("ArrowRight")
        tab.locator(f".step-times svg[aria-valuetext^='{name}: ']").wait_for()
    assert "from before" in tab.locator(".step-times").inner_text()
    bands = find_wide_bands(
        measure_bands(tab.context.browser, tab.url, sizes=((1440, 900),), schemes=("light",), link=analysed_once.link)
    )
    assert bands == []
    tab.keyboard.press("Enter")
    tab.get_by_role("heading", name="after").wait_for()


def test_the_page_of_analysed_traces_fills_its_first_screen_with_what_was_found(analysed_once, tab):
    tab.goto(analysed_once.link)
    wait_for_cell(tab, "after", "Top finding", "Input-bound")
    tab.get_by_role("link", name="after", exact=True).click()
    main = tab.get_by_role("main")
    main.get_by_text(re.compile("^Input-bound: .*estimated saving")).wait_for(timeout=WAIT_MS)
    for title in ("CPU", "GPU"):
        main.get_by_role("heading", name=title, exact=True).wait_for()
    assert main.get_by_role("link", name="Top kernels and copies").get_attribute("href") == "/generated/?run=after"
    screens = measure_bands(tab.context.browser, tab.url, sizes=((1280, 800), (400, 800)), link=analysed_once.link)
    assert find_wide_bands(screen for screen in screens if not screen.top) == []
    assert axe_violations(tab) == []


def test_the_change_against_the_run_before_leads_to_the_comparison(analysed_once, tab):
    server = analysed_once
    tab.goto(server.link)
    wait_for_cell(tab, "after", "Change", "+")
    link = tab.locator(".change-link")
    assert "slower" in link.get_attribute("class")
    assert link.get_attribute("title") == "compared with before: open the comparison"
    link.click()
    tab.locator(".verdict").first.wait_for(timeout=WAIT_MS)


def test_a_report_that_is_not_there_is_made_and_shown(analysed_once, tab):
    server = analysed_once
    tab.goto(server.link)
    tab.get_by_role("link", name="after", exact=True).click()
    tab.get_by_role("link", name="Make the report and show it").click()
    tab.get_by_role("main").get_by_text("Input-bound").first.wait_for(timeout=WAIT_MS)


def test_a_report_that_cannot_be_made_says_why(analysed, context):
    (server, folder), tab = analysed, context.new_page()
    (folder / "broken").mkdir()
    (folder / "broken" / "trace.json").write_text("no trace")
    tab.goto(server.link)
    wait_for_cell(tab, "broken", "Top finding", "Cannot read the trace")
    tab.get_by_role("link", name="report on broken").click()
    tab.get_by_text("Cannot make the report on broken: Cannot read the trace").wait_for(timeout=WAIT_MS)


def test_runs_are_sorted_and_filtered_and_the_address_keeps_both(analysed, tab):
    server, folder = analysed
    (folder / "empty" / "traces").mkdir(parents=True)
    with Profiler(lambda state: "skip", JSONTraceHandler(str(folder / "empty" / "traces"))) as profiler:
        for _ in profiler.batches(range(3)):
            pass
    tab.goto(server.link)
    wait_for_cell(tab, "after", "Change", "+")
    assert names(tab) == ["empty", "after", "before"], "the newest first"
    tab.get_by_role("button", name="Step time").click()
    assert names(tab) == ["after", "before", "empty"], "the slowest first, and unknown values last"
    tab.get_by_role("button", name="Step time").click()
    assert names(tab) == ["before", "after", "empty"]
    tab.get_by_role("searchbox").fill("waits")
    assert names(tab) == ["after"]
    tab.reload()
    assert tab.get_by_role("searchbox").input_value() == "waits"
    tab.get_by_role("searchbox").fill("")
    assert names(tab) == ["before", "after", "empty"]
    tab.get_by_label("Show").select_option("without traces")
    assert names(tab) == ["empty"]
    assert SCHEDULE_SAID in cells(tab, "empty")["Run"]
    assert tab.get_by_role("checkbox", name="Compare empty").is_disabled()
    tab.reload()
    assert names(tab) == ["empty"]
    tab.get_by_label("Show").select_option("finished")
    assert names(tab) == ["empty"]


def test_copied_table_can_be_pasted_into_a_spreadsheet(analysed_once, tab):
    server = analysed_once
    tab.goto(server.link)
    wait_for_cell(tab, "after", "Change", "+")
    tab.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    tab.get_by_role("button", name="Copy as TSV").click()
    head, *rows = tab.evaluate("window.copied").split("\n")
    assert head.split("\t")[:2] == ["Run", "When (unix ms)"]
    assert [row.split("\t")[0] for row in rows] == ["after", "before"]
