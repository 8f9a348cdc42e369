"""An impossible number in a field of our own files is reported in a sentence with file and field."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from kinetoscope.cli import main

VALUES = {"2**70": str(2**70), "-1": "-1", "1e400": "1e400", "NaN": "NaN", "huge": "1e308", "text": '"text"'}
MARK = "planted-here"
MAY_BE_NEGATIVE = re.compile(
    r"unix_ns|offset_ns|drift_ppm|begin_ns|monotonic_ns|measurements|reference|begin|end|timestamp"
)

# Two ranks in one process after the other, with a clock that was compared, then a kill in the middle of a window.
RUN = """
import os, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
def plan(state): return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch in (1, 3) else ProfilerAction.ACTIVE
with Profiler(plan, JSONTraceHandler(sys.argv[1] + "/traces", merged_trace_filename=None)) as profiler:
    for batch in profiler.batches(range(100)):
        with profiler.marker("work"):
            pass
        if batch == 5:
            profiler.lifecycle.drain(60)
            os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "run"
    done = subprocess.run([sys.executable, "-c", RUN, folder], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    trace = folder / "traces" / "ep0-ba2-rank0.json"
    output = json.loads(trace.read_text())
    beside = {"measurements": [[1, 2, 3], [4, 5, 6]], "reference": [1, 2, 3], "same_clock": False}
    output["kinetoscope"]["clock"]["beside_rank0"] = beside | {"offset_ns": 1, "drift_ppm": 0.5, "bound_ns": 7}
    output["kinetoscope"]["warmup_batches"] = [[0, 1]]
    output["distributedInfo"] = {"rank": 0, "world_size": 1}
    trace.write_text(json.dumps(output))
    assert main(["convert", str(trace), "-o", str(folder / "some.parquet")]) == 0
    assert main(["merge", "-o", str(folder / "merged.json"), str(folder / "traces")]) == 0
    return folder


@pytest.fixture
def run(killed, tmp_path):
    return Path(shutil.copytree(killed, tmp_path / "run"))


def places_of_numbers(document, path=()):
    """The keys to each number in nested lists and dicts."""
    if isinstance(document, (dict, list)):
        items = document.items() if isinstance(document, dict) else enumerate(document)
        for key, below in items:
            yield from places_of_numbers(below, (*path, key))
    elif isinstance(document, (int, float)) and not isinstance(document, bool):
        yield path


def planted(document, path, value):
    """Return the document as text, with the value at a place."""
    changed = json.loads(json.dumps(document))
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = MARK
    return json.dumps(changed).replace(f'"{MARK}"', value)


def is_allowed(path, value):
    return value == "-1" and any(MAY_BE_NEGATIVE.fullmatch(str(key)) for key in path)


def name_of(path):
    """Return the innermost name, which the sentence must have; the numbers of a timestamp have those of the
    timestamp."""
    names = [key for key in path if isinstance(key, str)]
    return next((key for key in names if key in ("begin", "end", "timestamp")), names[-1])


def require_report(command, file, path, capsys):
    capsys.readouterr()
    code = main(list(map(str, command)))
    output = capsys.readouterr()
    story = f"{command[0]} with {path}: {output.out}{output.err}"
    assert code == 1, story
    assert file in output.out + output.err, story
    assert name_of(path) in output.out + output.err, story
    assert "Traceback" not in output.err, story


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("name", ["traces/ep0-ba2-rank0.json", "merged.json"])
def test_in_the_header_of_a_trace(run, capsys, name, value):
    file = run / name
    document = json.loads(file.read_text())
    events, header = document.pop("traceEvents"), document
    places = list(places_of_numbers(header))
    assert len(places) > 20
    commands = [["summary", file, "--no-cache"], ["info", file, "--no-cache"], ["check", file]]
    commands += [["merge", "-o", run / "out.json", file, "--force"]]
    for number, path in enumerate(places):
        if not is_allowed(path, value):
            file.write_text(planted(header, path, value)[:-1] + ', "traceEvents": ' + json.dumps(events) + "}")
            require_report(commands[number % len(commands)], file.name, path, capsys)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_in_the_metadata_of_parquet(run, capsys, value):
    file = run / "some.parquet"
    frame, document = pl.read_parquet(file), json.loads(pl.read_parquet_metadata(file)["kinetoscope"])
    document = {key: below for key, below in document.items() if key not in ("tracks", "written")}
    whole = json.loads(pl.read_parquet_metadata(file)["kinetoscope"])
    places = [path for path in places_of_numbers(document) if path != ("version",)]
    for number, path in enumerate(places):
        if not is_allowed(path, value):
            frame.write_parquet(file, metadata={"kinetoscope": planted(whole, path, value)})
            if value == "NaN":  # that is no JSON
                path = ("some.parquet",)
            elif value == "1e400":  # no JSON number, so its field of the header is unknown
                path = path[:1]
            verb = ["summary", "info"][number % 2]
            require_report([verb, file, "--no-cache"], file.name, path, capsys)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_in_a_manifest(run, capsys, value):
    file = run / "traces" / ".manifest" / "rank0.jsonl"
    lines = file.read_text().splitlines()
    for number, line in enumerate(lines):
        for path in places_of_numbers(document := json.loads(line)):
            if not is_allowed(path, value):
                changed = planted(document, path, value)
                file.write_text("\n".join([*lines[:number], changed, *lines[number + 1 :]]) + "\n")
                merged = run / "traces" / "merged_trace.json"
                merged.unlink(missing_ok=True)
                require_report(["info", merged], f"rank0.jsonl: in line {number + 1}", path, capsys)


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("name", ["run.json", "windows.jsonl"])
def test_in_a_live_folder(killed, tmp_path, capsys, name, value):
    [file] = killed.glob(f"live/*/{name}")
    lines = file.read_text().splitlines()
    for number, line in enumerate(lines):
        for path in places_of_numbers(document := json.loads(line)):
            if is_allowed(path, value):
                continue
            run = Path(shutil.copytree(killed, tmp_path / "run"))
            changed = planted(document, path, value)
            [copy] = run.glob(f"live/*/{name}")
            copy.write_text("\n".join([*lines[:number], changed, *lines[number + 1 :]]) + "\n")
            require_report(["recover", run], name, path, capsys)
            shutil.rmtree(run)


ARGUMENTS = [
    *([verb, "FILE", option] for verb in ("summary", "whatif") for option in ("--last", "--ranks", "--attempt")),
    ["whatif", "FILE", "--on-time"],
    ["merge", "-o", "OUT", "FILE", "--last"],
    ["merge", "-o", "OUT", "FILE", "--ranks"],
    ["merge", "-o", "OUT", "FILE", "--batches"],
    ["check", "FILE", "--jobs"],
    ["convert", "FILE", "-o", "OUT", "--jobs"],
    ["info", "FILE", "--attempt"],
    ["upload", "RUN", "--rank"],
    ["upload", "RUN", "--retry-for"],
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda arguments: f"{arguments[0]} {arguments[-1]}")
def test_in_an_argument(run, capsys, arguments):
    places = {
        "FILE": run / "traces" / "ep0-ba2-rank0.json",
        "OUT": run / "out.json",
        "RUN": run,
        "TRACES": run / "traces",
    }
    command = [str(places.get(argument, argument)) for argument in arguments]
    for value in (str(2**70), "-1", "1e400", "NaN", "1e308", "text", f"0-{2**70}", "", "²"):
        try:
            code = main([*command[:-1], f"{command[-1]}={value}"])
        except SystemExit as error:
            code = error.code
        output = capsys.readouterr().err
        assert code == 2 or (value == "" and code in (0, 1)), f"{value}: {output}"
        assert code != 2 or command[-1] in output, f"{value}: {output}"
    assert not os.path.exists(run / "out.json") or arguments[-1] in ("--last", "--ranks", "--batches")
