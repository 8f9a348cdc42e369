"""No command reads a trace through a link that it finds, nor waits at a pipe; what the user names is read."""

import json
import os
import subprocess
import sys

import pytest

import kinetoscope
from kinetoscope.cli import main
from kinetoscope.errors import UnsafePathError

TROUBLE_OF_DIFF = 2  # its 1 means that something got slower
SECRET = "the-name-of-a-secret"


def write_trace(path, name, rank=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    spans = [
        {"ph": "X", "name": f"ProfilerStep#{step}", "cat": "user_annotation", "pid": 1, "tid": 1, "ts": 100 * step}
        | {"dur": 90}
        for step in range(1, 4)
    ]
    inside = [
        {"ph": "X", "name": name, "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 100 * step + 5, "dur": 50}
        for step in range(1, 4)
    ]
    header = {"distributedInfo": {"rank": rank, "world_size": 2}}
    path.write_text(json.dumps(header | {"traceEvents": [*spans, *inside]}))
    return path


@pytest.fixture
def run(tmp_path):
    """Make a run's folder with one trace, next to a private trace and another run."""
    write_trace(tmp_path / "outside" / "secret.json", SECRET, rank=1)
    write_trace(tmp_path / "other" / "traces" / "ep0-ba2-rank0.json", "aten::mm")
    (tmp_path / "out").mkdir()
    return write_trace(tmp_path / "run" / "traces" / "ep0-ba2-rank0.json", "aten::mm").parent.parent


COMMANDS = {
    "summary": ["summary", "{folder}", "--json"],
    "report": ["report", "{folder}", "-o", "{out}/page.html"],
    "whatif": ["whatif", "{folder}", "--json"],
    "diff, first": ["diff", "{folder}", "{other}", "--json"],
    "diff, second": ["diff", "{other}", "{folder}", "--json"],
    "info": ["info", "{folder}", "--json"],
    "convert": ["convert", "{traces}", "-o", "{out}", "--to", ".json.gz"],
    "to parquet": ["convert", "{traces}", "-o", "{out}", "--to", ".parquet"],
    "check": ["check", "{traces}"],
    "repair": ["check", "{traces}", "--repair", "{out}"],
    "merge": ["merge", "-o", "{out}/merged.json", "{traces}"],
}


def call(command, run, capsys):
    """Return the exit code, and what was printed. Paths of the run are put into the command."""
    places = {"folder": run, "traces": run / "traces", "other": run.parent / "other", "out": run.parent / "out"}
    code = main([part.format(**places) for part in COMMANDS[command]])
    output = capsys.readouterr()
    return code, output.out + output.err


def of_out(run):
    return b"".join(path.read_bytes() for path in (run.parent / "out").rglob("*") if path.is_file())


def make_link(path, run):
    path.symlink_to(run.parent / "outside" / "secret.json")


def make_dangling(path, run):
    path.symlink_to(run.parent / "nothing")


def make_inner(path, run):
    path.symlink_to("ep0-ba2-rank0.json")


def make_device(path, run):
    path.symlink_to("/dev/zero")


def make_pipe(path, run):
    os.mkfifo(path)


@pytest.mark.parametrize("make", [make_link, make_dangling, make_inner, make_device, make_pipe])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_which_file_of_a_folder_is_a_link_or_a_pipe_and_reads_none(run, capsys, command, make):
    path = run / "traces" / "ep0-ba2-rank1.json"
    make(path, run)
    code, output = call(command, run, capsys)
    assert code == (TROUBLE_OF_DIFF if command.startswith("diff") else 1)
    assert str(path) in output
    assert ("is no ordinary file" if make is make_pipe else "symbolic link") in output
    assert SECRET not in output
    assert not of_out(run)


@pytest.mark.parametrize("name", ["traces", "traces/attempt1"])
@pytest.mark.parametrize("command", [name for name, parts in COMMANDS.items() if "{folder}" in parts])
def test_a_folder_in_a_run_that_is_a_link_is_not_followed(run, capsys, command, name):
    if name == "traces":
        (run / "traces").rename(run / "before")
    (run / name).symlink_to(run.parent / "outside")
    code, output = call(command, run, capsys)
    assert code == (TROUBLE_OF_DIFF if command.startswith("diff") else 1)
    assert str(run / name) in output
    assert "symbolic link" in output
    assert SECRET not in output


@pytest.mark.parametrize("command", COMMANDS)
def test_run_in_a_symlinked_folder_is_read(run, capsys, command):
    link = run.parent / "latest"
    link.symlink_to(run)
    code, output = call(command, link, capsys)
    assert code in (0, 1, 3)  # check finds that there is no clock, and diff too few steps
    assert "symbolic link" not in output


@pytest.mark.parametrize(
    "command",
    [["summary", "--json"], ["info", "--json"], ["whatif", "--json"], ["report", "-o", "{out}/page.html"], ["check"]],
)
def test_a_link_that_the_user_names_is_read(run, capsys, command):
    link = run / "traces" / "mine.json"
    make_link(link, run)
    code = main([*(part.format(out=run.parent / "out") for part in command), str(link)])
    output = capsys.readouterr()
    assert "symbolic link" not in output.out + output.err
    assert code == 0 or command == ["check"]


@pytest.mark.parametrize("target", ["one.json.gz", "one.parquet", "one.pftrace"])
def test_a_link_that_the_user_names_is_converted(run, capsys, target):
    link = run / "traces" / "mine.json"
    make_link(link, run)
    assert main(["convert", str(link), "-o", str(run.parent / "out" / target)]) == 0


@pytest.mark.parametrize("command", [["summary"], ["info"], ["check"], ["merge", "-o", "{out}/merged.json"]])
def test_glob_skips_found_links_and_follows_links_named_by_the_user(run, capsys, command):
    (run.parent / "latest").symlink_to(run)
    arguments = [part.format(out=run.parent / "out") for part in command]
    assert main([*arguments, str(run.parent / "latest" / "traces" / "*.json")]) in (0, 1)
    assert "symbolic link" not in capsys.readouterr().err
    make_link(run / "traces" / "ep0-ba2-rank1.json", run)
    assert main([*arguments, str(run / "traces" / "*.json")]) == 1
    assert "ep0-ba2-rank1.json is, or lies behind, a symbolic link" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["", "traces", "traces/*.json"])
def test_load_reads_no_link_that_it_finds(run, source):
    make_link(run / "traces" / "ep0-ba2-rank1.json", run)
    with pytest.raises(UnsafePathError, match=r"ep0-ba2-rank1[.]json is, or lies behind, a symbolic link"):
        kinetoscope.load(run / source)
    assert kinetoscope.load(run / "traces" / "ep0-ba2-rank1.json").rank == 1
    assert kinetoscope.load([run / "traces" / "ep0-ba2-rank1.json"]).ranks == [1]


SWAPPED = """
import sys
from pathlib import Path
from kinetoscope.frames import load
names = load.list_traces(sys.argv[1])
Path(sys.argv[2]).unlink()
Path(sys.argv[2]).symlink_to(sys.argv[3])
import pickle
for name in pickle.loads(pickle.dumps(names)):
    try:
        print(load.load_one(name, cache=False).spans.collect()["name"].to_list())
    except OSError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize("source", ["traces", "."])
def test_a_file_that_became_a_link_after_it_was_found_is_not_read(run, source):
    found, secret = run / "traces" / "ep0-ba2-rank0.json", run.parent / "outside" / "secret.json"
    command = [sys.executable, "-c", SWAPPED, run / source, found, secret]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "UnsafePathError" in done.stdout
    assert SECRET not in done.stdout
