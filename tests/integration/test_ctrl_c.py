"""Ctrl-C ends a command on many files, whatever its threads do, and the command says what is written."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.polling import wait_for

MAX_WAIT_S = 100

# The command with a thread that does not react to anything, such as one inside another library.
STUCK = """
import sys, threading
from kinetoscope.cli import convert, main
from kinetoscope.core.paths.atomic_file import atomic_file

ordinary = convert._convert_one

def stuck(pair, on_progress):
    if "large" not in str(pair[0]):
        return ordinary(pair, on_progress)
    with atomic_file(pair[1]) as stream:
        stream.write(b"half of it")
        threading.Event().wait()

convert._convert_one = stuck
sys.exit(main(sys.argv[1:]))
"""


def write(path, num_spans=10):
    spans = [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": n, "dur": 1} for n in range(num_spans)]
    path.write_text(json.dumps({"baseTimeNanoseconds": 1_790_857_026_000_000_000, "traceEvents": spans}))


def interrupted(command, folder, is_time):
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, *command], cwd=folder, **pipes, text=True) as process:
        try:
            wait_for(lambda: is_time() or process.poll() is not None)
            assert process.poll() is None, process.communicate()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=MAX_WAIT_S)
        finally:
            process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("suffix", [".json.gz", ".pftrace"])
def test_ctrl_c_says_which_files_are_written_and_leaves_no_part_of_another(tmp_path, suffix):
    for name in ("one", "two", "large"):
        write(tmp_path / f"{name}.json")
    done = [tmp_path / "out" / f"{name}{suffix}" for name in ("one", "two")]
    command = ["-c", STUCK, "convert", "one.json", "large.json", "two.json", "-o", "out", "--to", suffix, "--jobs", "3"]
    err = interrupted(
        command, tmp_path, lambda: all(map(Path.exists, done)) and any(tmp_path.glob("out/.large*.partial"))
    )
    written = ", ".join(str(path.relative_to(tmp_path)) for path in done)
    assert err == f"kinetoscope convert: interrupted. Written: {written}. No incomplete file is left.\n"
    assert sorted(os.listdir(tmp_path / "out")) == sorted(path.name for path in done)


def test_ctrl_c_before_anything_is_written_says_so(tmp_path):
    for name in ("large", "large2"):
        write(tmp_path / f"{name}.json")
    command = ["-c", STUCK, "convert", "large.json", "large2.json", "-o", "out", "--to", ".json.gz", "--jobs", "1"]
    err = interrupted(command, tmp_path, lambda: any(tmp_path.glob("out/.large*.partial")))
    assert err == "kinetoscope convert: interrupted. No file was written, and no incomplete file is left.\n"
    assert os.listdir(tmp_path / "out") == []


def test_sigint_stays_ignored_if_it_was_as_in_a_background_job(tmp_path):
    for name in ("one", "two"):
        write(tmp_path / f"{name}.json")
    script = """
trap '' INT
"$0" -m kinetoscope convert one.json two.json -o out --to .json.gz &
pid=$!
for _ in 1 2 3 4 5 6 7 8; do kill -INT $pid 2>/dev/null; sleep 0.1; done
wait $pid
"""
    done = subprocess.run(["bash", "-c", script, sys.executable], cwd=tmp_path, timeout=MAX_WAIT_S)
    assert done.returncode == 0
    assert sorted(os.listdir(tmp_path / "out")) == ["one.json.gz", "two.json.gz"]


def test_tests_that_press_ctrl_c_pass_also_in_the_background_where_it_is_ignored(tmp_path):
    own = Path(__file__)
    names = [
        f"{own}::test_ctrl_c_before_anything_is_written_says_so",
        f"{own.parents[1]}/unit/recording/run/test_shutdown.py::test_ctrl_c_ends_the_wait_for_a_save_and_another_close_finishes_it",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/inner", *names]
    done = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command],
        capture_output=True,
        text=True,
        timeout=150,
        stdin=subprocess.DEVNULL,
        cwd=own.parents[2],
    )
    assert done.returncode == 0, done.stdout
    assert f"{len(names)} passed" in done.stdout


IMPORTS = """
import os, signal, sys
import kinetoscope.cli

class Presses:
    def find_spec(self, name, path=None, target=None):
        if name == "kinetoscope.cli.info":
            import polars
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Presses())
sys.argv = ["kinetoscope", "info", "--help"]
kinetoscope.cli.command()
"""


def test_ctrl_c_while_a_command_is_loaded_ends_it():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
