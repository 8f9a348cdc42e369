"""Traces and reports show themselves in a notebook: a real kernel runs it, and what it shows is looked at."""

import json
from html.parser import HTMLParser

import pytest

from support.notebook_kernel import run_cells

HOSTILE = ["</script><img src=x onerror=alert(1)>", "\u202etxt.exe", "long " * 2_000]
BASE_NS = 1_790_000_000_000_000_000
CELLS = [
    "import kinetoscope",
    "kinetoscope.load('before/rank0.json', cache=False)",
    "kinetoscope.load('before', cache=False)",
    "report = kinetoscope.analyze('before', cache=False)\nreport",
    "kinetoscope.compare(report, kinetoscope.analyze('after', cache=False))",
    "kinetoscope.view(report)",
    "from kinetoscope.analysis.replay.replay import Change\nChange(frozenset(['data']))",
]


def write_run(folder, step_us, run_name, num_steps=1000):
    """A run of one rank of this name, with operators of hostile names."""
    folder.mkdir()
    events = []
    for step in range(num_steps):
        begin_us, place = step * step_us, {"ph": "X", "pid": 1, "tid": 1}
        events.append(
            place | {"name": f"ProfilerStep#{step}", "cat": "user_annotation", "ts": begin_us, "dur": step_us}
        )
        for number, name in enumerate(HOSTILE if step < 20 else ["aten::mm"]):
            event = {"name": name, "cat": "cpu_op", "ts": begin_us + 10 * number, "dur": 5}
            events.append(place | event | {"args": {"External id": step}})
    header = {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": 0, "world_size": 1}}
    header |= {"kinetoscope": {"run_name": run_name, "rank": 0}}
    (folder / "rank0.json").write_text(json.dumps(header | {"traceEvents": events}))


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """The output of each cell, by its type; one kernel runs them all."""
    folder = tmp_path_factory.mktemp("notebook")
    write_run(folder / "before", 800, "before")
    write_run(folder / "after", 900, HOSTILE[0])
    return [outputs[0].data for outputs in run_cells(folder, CELLS)[1:]]


class Page(HTMLParser):
    """The elements and the texts of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts = set(), []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


FIRST = {
    "Trace": "kinetoscope.Trace rank0.json",
    "TraceSet": "kinetoscope.TraceSet",
    "RunReport": "before: 1 rank, 1,000 steps, 0.80 ms/step",
    "Comparison": "Slower: 0.800 -> 0.900 ms/step",
}


@pytest.mark.parametrize(("number", "name"), list(enumerate(FIRST)))
def test_each_shows_what_it_is_without_scripts_and_a_short_text(outputs, number, name):
    page = Page(outputs[number]["text/html"])
    assert page.texts[0].startswith(FIRST[name])
    assert page.tags <= {"div", "table", "caption", "tr", "th", "td", "bdi", "b", "span", "ol", "li", "code"}
    text = outputs[number]["text/plain"]
    assert text.startswith(f"<kinetoscope.{name} ")
    assert len(text.splitlines()) <= 12
    assert all(len(line) < 400 for line in text.splitlines())


def test_names_stay_text(outputs):
    assert f"after: {HOSTILE[0]}, 1 rank, 1,000 steps" in Page(outputs[3]["text/html"]).texts


def test_change_of_a_replay_is_described_in_words(outputs):
    assert Page(outputs[5]["text/html"]).texts == ["no wait for data"]


def test_a_report_of_a_thousand_steps_is_a_small_cell(outputs):
    html, text = outputs[2]["text/html"], outputs[2]["text/plain"]
    assert len(html) < 10_000
    assert text.splitlines()[0] == "<kinetoscope.RunReport of before: 1 of 1 ranks, 1,000 steps"


def test_a_comparison_shows_its_rows_with_what_got_worse(outputs):
    lines = outputs[3]["text/plain"].splitlines()
    assert lines[0].startswith("<kinetoscope.Comparison of before and </script>")
    assert any(line.strip().startswith("slower  step typical step: 0.8 ms, then 0.9 ms (+12.5%)") for line in lines), (
        lines
    )


def test_view_shows_the_page_in_a_frame_of_its_own_of_less_than_1_mb(outputs):
    frame = outputs[4]["text/html"]
    assert Page(frame).tags == {"iframe"}
    assert 'sandbox="allow-scripts"' in frame
    assert len(frame) <= 1_000_000
    assert "kinetoscope report PATH --open" in outputs[4]["text/plain"]
