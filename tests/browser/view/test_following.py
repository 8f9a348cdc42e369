"""Pages of `kinetoscope view` that follow runs as they train and end."""

import os
import re
import shutil
import signal

from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
from support.fork_server import KINETOSCOPE_MODULES, start_forked
from support.minimal_pages import axe_violations
from support.view_pages import WAIT_MS, names, refocus
from support.view_server import served


def test_the_list_follows_what_happens_while_it_is_open(runs, tab):
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("checkbox", name="Compare digits").check()
        profiler = Profiler(cyclic_schedule(wait=0, warmup=0, active=2), JSONTraceHandler(str(runs / "now" / "traces")))
        with profiler:
            refocus(tab)
            tab.get_by_text("running").first.wait_for(timeout=WAIT_MS)
            assert names(tab)[0] == "now"
            assert tab.get_by_role("checkbox", name="Compare now").is_disabled()
            for _ in profiler.batches(range(2)):
                pass
        tab.locator(".state.finished").wait_for(timeout=WAIT_MS)
        assert tab.get_by_role("checkbox", name="Compare digits").is_checked(), "what the reader did stays"
        shutil.rmtree(runs / "now")
        refocus(tab)
        tab.get_by_role("link", name="now", exact=True).wait_for(state="detached", timeout=WAIT_MS)


def test_the_page_of_a_run_follows_it_too_and_says_when_it_is_gone(runs, context):
    tab = context.new_page()
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="digits", exact=True).click()
        (runs / "digits" / "traces" / "rank1.json").write_text("{}")
        refocus(tab)
        tab.get_by_role("link", name="traces/rank1.json").wait_for(timeout=WAIT_MS)
        shutil.rmtree(runs / "digits")
        refocus(tab)
        tab.get_by_text("This run is no longer in the folder.").wait_for(timeout=WAIT_MS)
        assert "traces/rank1.json" in tab.inner_text("main")


def test_the_list_says_when_the_command_has_ended(runs, context):
    tab = context.new_page()
    with served(runs) as server:
        tab.goto(server.link)
    refocus(tab)
    tab.get_by_role("alert").get_by_text("does not answer").wait_for(timeout=WAIT_MS)
    assert names(tab)


def test_page_of_an_empty_folder_explains_how_to_get_a_run_and_shows_the_first(tmp_path, tab):
    with served(tmp_path) as server:
        tab.goto(server.link)
        tab.get_by_text("There are no runs here yet.").wait_for(timeout=WAIT_MS)
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "trace.json").write_text("{}")
        refocus(tab)
        tab.get_by_role("link", name="a", exact=True).wait_for(timeout=WAIT_MS)


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
