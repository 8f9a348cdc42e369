"""Names in traces are written by anybody: whatever a command prints, they neither flood nor steer a terminal."""

import json
from contextlib import suppress

import pytest

from kinetoscope.cli import main
from support.page_data import span, write_trace

EVIL = "\x1b[2J\x1b]0;owned\x07\r\u202eevil"
MAX_LETTERS = 20_000
LONG = "long " + "x" * (MAX_LETTERS + 10_000)  # so that one name in full would be too much
STEERING = ("\x1b", "\x07", "\r", "\u202e")


def events(name):
    """Ten steps in which each text is ``name``."""
    found = []
    for step in range(10):
        first = 1000 * step
        found += [
            span(f"ProfilerStep#{step}", first, 900, category="user_annotation"),
            span(f"{name}.py(12): {name}", first + 1, 890, category="python_function"),
            span(name, first + 5, 300),
            span(name, first + 310, 200, category=name),
            span(name, first + 500, 100, tid=7, category="kernel", device=0, stream=7, correlation=step),
            span("compile/" + name, first + 610, 250, category="compile", guard=name, function=name),
            {"ph": "C", "name": name, "pid": 1, "tid": 1, "ts": first, "args": {name: step}},
            {"ph": "s", "name": name, "cat": name, "id": step, "pid": 1, "tid": 1, "ts": first},
        ]
    named = [
        {"ph": "M", "name": f"{what}_name", "pid": 1, "tid": 1, "args": {"name": name}}
        for what in ("process", "thread")
    ]
    return [*found, *named]


@pytest.fixture(scope="module", params=[LONG, EVIL], ids=["long", "evil"])
def name(request):
    return request.param


@pytest.fixture(scope="module")
def paths(tmp_path_factory, name):
    """Traces of two ranks, which nothing writes to."""
    folder = tmp_path_factory.mktemp("traces")
    header = {"run_name": name, "host": name, "notes": [name] * 5}
    info = {"world_size": 2}
    return [
        write_trace(
            folder / f"rank{rank}.json",
            events(name),
            kinetoscope=header | {"rank": rank},
            distributedInfo=info | {"rank": rank},
            deviceProperties=[{"id": 0, "name": name}],
        )
        for rank in range(2)
    ]


def assert_calm(output):
    assert len(output) < MAX_LETTERS
    assert [letter for letter in STEERING if letter in output] == []


VERBS = [
    ["info", "0", "1"],
    ["summary", "0", "1", "--no-cache"],
    ["summary", "0", "--no-cache", "--step", "NAME"],
    ["whatif", "0", "--no-cache"],
    ["whatif", "0", "--no-cache", "--faster", "NAME=2"],
    ["whatif", "0", "--no-cache", "--faster", "NAMEx=2"],
    ["whatif", "0", "--no-cache", "--faster", "NAME"],
    ["whatif", "0", "--no-cache", "--on-time", "7"],
    ["whatif", "0", "--no-cache", "--on-time", "NAME"],
    ["diff", "0", "1", "--no-cache"],
    ["check", "0", "1"],
    ["merge", "-o", "OUT", "0", "1"],
    ["merge", "-o", "OUT", "0", "--align-on", "NAMEx"],
    ["convert", "0", "-o", "OUT"],
    ["convert", "0", "-o", "NAME"],
    ["report", "0", "-o", "OUT.html", "--no-cache"],
    ["info", "NAME"],
    ["check", "NAME"],
    ["NAME"],
    ["summary", "0", "--NAME"],
    ["view", "NAME"],
    ["recover", "NAME"],
    ["upload", "NAME"],
]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_command_output_has_a_limited_length_and_no_control_characters(verb, paths, name, tmp_path, capsys):
    places = {"0": str(paths[0]), "1": str(paths[1])}
    words = [places.get(word, word).replace("OUT", str(tmp_path / "out.json")).replace("NAME", name) for word in verb]
    with suppress(SystemExit):  # of argparse
        main(words)
    output = capsys.readouterr()
    assert_calm(output.out)
    assert_calm(output.err)
    assert output.out or output.err


def test_traces_of_two_runs_with_such_names_are_refused_calmly(paths, tmp_path, name, capsys):
    trace = json.loads(paths[1].read_text())
    trace["kinetoscope"]["run_name"] += " other"
    other = tmp_path / paths[1].name
    other.write_text(json.dumps(trace))
    assert main(["summary", "--no-cache", str(paths[0]), str(other)]) == 1
    output = capsys.readouterr().err
    assert "different runs" in output
    assert_calm(output)
    assert len(output) < 1500
