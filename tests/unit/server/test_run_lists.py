"""Lists of runs, with a script and without one."""

import json
import re

import pytest

from kinetoscope import JSONTraceHandler, Profiler
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.core.paths.run_groups import store_command_hash
from kinetoscope.formats.run_row import RunRow, write_row
from kinetoscope.pages.run_list import encode_list, find_list_policy, render_list
from kinetoscope.server import run_lists
from kinetoscope.server.plain_pages import render_plain_list
from kinetoscope.server.run_lists import RunLists
from kinetoscope.server.run_search import MAX_ENTRIES, FoundFile, FoundRun, FoundRuns, RunState

BEGAN_NS = 1_790_857_026_000_000_000
HOUR_NS = 3600 * 10**9


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "my runs").mkdir()
    return tmp_path / "my runs"


def found(name, state=RunState.FINISHED, started_ns=BEGAN_NS, **facts):
    traces = facts.pop("traces", [FoundFile(f"{name}/traces/a.json", 10, BEGAN_NS, name)])
    return FoundRun(name, state, facts.pop("ranks", [0]), started_ns=started_ns, traces=traces, **facts)


class Known(RunLists):
    """The lists of a folder with these runs."""

    def __init__(self, folder, runs, *, is_complete=True):
        super().__init__(RunFolder(folder), "https://ui.perfetto.dev")
        self._known_runs = FoundRuns(list(runs), is_complete)

    def find(self):
        self._read_rows(self._known_runs.runs)
        return self._known_runs


def keep(folder, run, **facts):
    write_row(folder / run.name, RunRow(content_hash=run.content_hash, ranks=[0], **facts))


def text_of(html):
    """Return the visible text."""
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", html))


def test_cached_values_of_a_run_are_in_its_row_and_unknown_ones_are_none(folder):
    one, two = found("one", hosts=["node1"]), found("two")
    facts = {"num_steps": 6, "step_ns": 2e6, "finding": "The loop waits", "mfu": 0.4, "peak_bytes": 99}
    keep(folder, one, **facts, saving="saving 5 ms/step", devices=["H100"])
    data = Known(folder, [one, two]).all()
    assert {name: getattr(data.runs[0], name) for name in facts} == facts
    assert (data.runs[0].saving, data.runs[0].hosts, data.runs[0].devices) == ("saving 5 ms/step", ["node1"], ["H100"])
    assert {name: getattr(data.runs[1], name) for name in facts} == dict.fromkeys(facts)
    assert data.runs[0].when_ms == BEGAN_NS / 1e6


class Filler:
    """A filler whose process computes rows when the test says so."""

    pending: frozenset[str] = frozenset()

    def request_rows(self, runs):
        self.pending = frozenset(run.name for run in runs)

    def is_pending(self, name):
        return name in self.pending


def test_a_page_is_refreshed_until_it_has_the_row_that_was_computed_since_the_last_search(folder, monkeypatch):
    (folder / "one" / "traces").mkdir(parents=True)
    (folder / "one" / "traces" / "a.json").write_text("{}")
    filler = Filler()
    lists = RunLists(RunFolder(folder / "one"), "", filler)
    (run,) = lists.find().runs
    keep(folder / "one", run, step_ns=2e6)
    filler.pending = frozenset()
    data = lists.all()
    assert (data.runs[0].step_ns, data.runs[0].is_queued, data.refresh_ms) == (None, True, 2000)
    monkeypatch.setattr(run_lists, "_SEARCH_TTL_S", 0)
    data = lists.all()
    assert (data.runs[0].step_ns, data.runs[0].is_queued, data.refresh_ms) == (2e6, False, 0)


def test_step_is_compared_with_the_previous_run_on_equal_ranks_and_devices(folder):
    def run(name, hours, step_ns, **facts):
        one = found(name, started_ns=BEGAN_NS + hours * HOUR_NS)
        if step_ns is not None:
            keep(folder, one, step_ns=step_ns, **{"devices": ["H100"]} | facts)
        return one

    runs = [run("run-5", 5, 3e6), run("run-0", 0, 2e6), run("run-4", 4, None), run("run-3", 3, 9e6, devices=["A100"])]
    runs += [run("elsewhere/run-2", 2, 8e6), run("other", 4, 7e6)]
    changes = {one.title: (one.change, one.before_title) for one in Known(folder, runs).all().runs}
    assert changes.pop("run-5") == (0.5, "run-0")
    assert set(changes.values()) == {(None, None)}


def test_runs_of_one_command_are_compared_whatever_they_are_called(folder):
    runs = [found(name, started_ns=BEGAN_NS + hours * HOUR_NS) for hours, name in enumerate(("slow", "run-1", "fixed"))]
    for run, step_ns in zip(runs, (4e6, 9e6, 2e6), strict=True):
        keep(folder, run, step_ns=step_ns)
    for name, script in (("slow", "train.py"), ("run-1", "other.py"), ("fixed", "train.py")):
        store_command_hash(folder / name, ["python", script])
    earlier_runs = {one.title: one.before_title for one in Known(folder, runs).all().runs}
    assert earlier_runs == {"slow": None, "run-1": None, "fixed": "slow"}


class Searching(RunLists):
    """Make lists from separate searches, as by threads of several requests; these find ``searches`` in turn, and then
    nothing."""

    def __init__(self, folder, monkeypatch, searches):
        super().__init__(RunFolder(folder), "https://ui.perfetto.dev")
        remaining = iter(searches)
        monkeypatch.setattr(run_lists, "_SEARCH_TTL_S", 0.0)
        monkeypatch.setattr(run_lists, "find_runs", lambda *_, **__: FoundRuns(list(next(remaining, [])), True))

    def run_title(self, name):
        self.find()
        return super().run_title(name)


def test_the_trend_of_a_run_are_the_comparable_runs_of_its_group(folder):
    hours = {"resnet-1": 0, "resnet-2": 1, "bert": 2, "resnet-3": 3, "resnet-4": 4}
    runs = {name: found(name, started_ns=BEGAN_NS + hour * HOUR_NS) for name, hour in hours.items()}
    for number, (name, run) in enumerate(runs.items()):
        keep(folder, run, step_ns=1e6 * (1 + number), devices=["CPU" if name == "resnet-3" else "H100"])
    lists = Known(folder, runs.values())
    groups = {row.title: row.group for row in lists.all().runs}
    assert groups["bert"] not in {groups[name] for name in runs if name != "bert"}
    assert len({groups[name] for name in runs if name != "bert"}) == 1
    for name in ("resnet-1", "resnet-4"):
        files = lists.one(name).files
        assert [row.title for row in files.trend] == ["resnet-1", "resnet-2", "resnet-4"]
        assert files.max_step_ns == 5e6
    for name in ("bert", "resnet-3"):
        assert lists.one(name).files.trend == [], "no run compares with it"


def test_a_trend_of_many_runs_has_the_last_ones_and_the_run_itself(folder, monkeypatch):
    monkeypatch.setattr(run_lists, "MAX_TREND", 3)
    runs = [found(f"run{number}", started_ns=BEGAN_NS + number * HOUR_NS) for number in range(6)]
    for run in runs:
        keep(folder, run, step_ns=1e6)
    shown = {name: [row.title for row in Known(folder, runs).one(name).files.trend] for name in ("run0", "run5")}
    assert shown == {"run0": ["run0", "run1", "run2"], "run5": ["run3", "run4", "run5"]}


def test_the_page_of_a_run_that_has_ended_is_not_asked_again_and_a_list_is(folder):
    ended, unknown, running = (
        found(name, state)
        for name, state in (("a", RunState.FINISHED), ("b", RunState.UNKNOWN), ("c", RunState.RECORDING))
    )
    lists = Known(folder, [ended, unknown, running])
    assert [lists.one(name).refresh_ms for name in "abc"] == [0, 10_000, 2_000]
    assert Known(folder, [ended, unknown]).all().refresh_ms == 10_000
    assert Known(folder, [ended]).all().refresh_ms == 10_000, "another run may come"
    assert Known(folder, [found(".", RunState.KILLED)]).all().refresh_ms == 0


def test_the_page_of_a_finished_run_has_its_steps_and_no_status(folder):
    with Profiler(lambda state: "skip", JSONTraceHandler(str(folder / "ended" / "traces")), quiet=True) as profiler:
        for _ in profiler.batches(range(30)):
            pass
    files = RunLists(RunFolder(folder), "https://ui.perfetto.dev").one("ended").files
    assert files.live_status is None
    assert sum(piece.num_steps for piece in files.live_steps.pieces) == 30


def test_a_list_is_of_one_search_also_if_others_search_meanwhile(folder, monkeypatch):
    one, two = found("run-1", started_ns=BEGAN_NS), found("run-2", started_ns=BEGAN_NS + HOUR_NS)
    for run, step_ns in ((one, 2e6), (two, 3e6)):
        keep(folder, run, step_ns=step_ns)
    data = Searching(folder, monkeypatch, [[one, two]]).all()
    assert [(run.step_ns, run.change) for run in data.runs] == [(2e6, None), (3e6, 0.5)]


def test_a_run_that_is_found_only_by_a_later_search_is_not_there_yet(folder, monkeypatch):
    with pytest.raises(FileNotFoundError):
        Searching(folder, monkeypatch, [[], [found("one")]]).one("one")


def test_a_killed_run_says_how_to_make_traces_of_what_it_left(folder):
    run = found("digits", RunState.KILLED, ranks=[0, 1], world_size=4, unsaved=["a", "b"])
    data = Known(folder, [run]).all()
    text = text_of(render_plain_list(data))
    assert "killed, 2 of 4 ranks" in text
    (note,) = data.runs[0].notes
    assert note == f"2 killed ranks left unsaved records. To make traces: kinetoscope recover '{folder / 'digits'}'"
    assert text_of(note).replace("'", "&#39;") in text


def test_reason_of_no_recording_and_unreadable_files_are_reported(folder):
    why = "Nothing was recorded: no step() was called."
    runs = [found("one", no_data_reason=why, traces=[]), found("two", problem="Cannot read the manifest x.")]
    data = Known(folder, runs).all()
    assert [run.notes for run in data.runs] == [[why], ["Cannot read the manifest x."]]
    assert data.runs[0].report is None
    assert why in text_of(render_plain_list(data))


def test_a_run_without_a_report_leads_to_one_that_is_made_and_others_to_the_newest(folder):
    reports = [FoundFile("new/a.html", 1, 5), FoundFile("new/b.html", 1, 9)]
    data = Known(folder, [found("old one"), found("new", reports=reports)]).all()
    assert [run.report for run in data.runs] == ["/generated/?run=old%20one", "/report/new/b.html"]
    assert Known(folder, [found("old one")]).all().files.path == f"'{folder / 'old one'}'"


@pytest.mark.parametrize(
    ("name", "opens_in_perfetto"), [("a.json", True), ("a.pftrace.gz", True), ("a.json.zst", False)]
)
def test_unreadable_trace_is_not_offered_to_perfetto(folder, name, opens_in_perfetto):
    data = Known(folder, [found("digits", traces=[FoundFile(f"digits/{name}", 10, BEGAN_NS)])]).all()
    (file,) = data.files.traces
    assert (file.address, file.opens_in_perfetto) == (f"/trace/digits/{name}", opens_in_perfetto)
    assert "2026-10-01 12:17:06 UTC" in render_plain_list(data)


def test_a_file_may_be_of_any_time(folder):
    for moment_ns in (-(10**25), 10**25):
        data = Known(folder, [found("a", traces=[FoundFile("a/a.json", 10, moment_ns)])]).all()
        assert "10 bytes" in text_of(render_plain_list(data))
        json.loads(encode_list(data))


def test_one_run_is_shown_at_once_and_several_as_a_list(folder):
    assert Known(folder, [found("one")]).all().files.is_only
    data = Known(folder, [found("one"), found("two")]).all()
    assert data.files is None
    assert re.findall('href="(/run/[a-z]*)"', render_plain_list(data)) == ["/run/one", "/run/two"]


def test_omitted_rows_are_mentioned(folder, monkeypatch):
    monkeypatch.setattr(run_lists, "MAX_ROWS", 2)
    data = Known(folder, [found(str(number)) for number in range(5)], is_complete=False).all()
    assert len(data.runs) == 2
    assert f"Only the first {MAX_ENTRIES:,} files and folders were looked at." in data.notes
    assert any("And 3 more runs" in note for note in data.notes)
    traces = [FoundFile(f"a/{number}.json", 1, 0) for number in range(5)]
    assert Known(folder, [found("a", traces=traces)]).all().files.num_left_out == 3


@pytest.mark.parametrize(("run", "shown"), [("digits", "traces/a.json"), (".", "digits/traces/a.json")])
def test_a_trace_is_named_as_seen_from_its_run(folder, run, shown):
    data = Known(folder, [found(run, traces=[FoundFile("digits/traces/a.json", 10, BEGAN_NS)])]).all()
    assert data.files.traces[0].name == shown
    assert f"<bdi>{shown}</bdi>" in render_plain_list(data)


@pytest.mark.parametrize("name", ["</script><b>", "{{data}}{{plain}}{{title}}", "a\udcff\u202e", "\\u003c", "ü &amp;"])
def test_names_stay_text_in_every_part_of_the_page(folder, name):
    run = found(name, hosts=["</script>"])
    data = Known(folder, [run, found("other")]).all()
    page = render_list(data, render_plain_list(data))
    assert page.count("</script>") == 2, "that of the program and that of the data"
    (written,) = re.findall(r'<script type="application/json" id="list-data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(written)["runs"][0]["title"] == data.runs[0].title
    assert "<b>" not in page.partition("<noscript>")[2].partition("</noscript>")[0]


def test_it_is_asked_again_soon_while_something_changes(folder):
    assert Known(folder, [found("one"), found("two")]).all().refresh_ms == 10_000
    assert Known(folder, [found("one"), found("two", RunState.RECORDING)]).all().refresh_ms == 2_000


def test_the_page_may_only_reach_its_own_server():
    directives = dict(part.strip().split(" ", 1) for part in find_list_policy().split(";"))
    assert directives["default-src"] == directives["frame-ancestors"] == "'none'"
    assert directives["connect-src"] == "'self'"
    assert re.fullmatch("'sha256-[^']*'", directives["script-src"])
