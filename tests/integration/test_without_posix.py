"""The commands on a machine without POSIX: they run in processes from which everything of POSIX was removed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# Python runs this as it starts. It removes what Windows does not have, except os.uname, which polars needs on Linux.
PROLOGUE = """
import os, select, signal, sys, time

for name in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "syslog"):
    sys.modules[name] = None

def take_away(module, *names):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

take_away(os, "fork", "forkpty", "register_at_fork", "mkfifo", "mknod", "nice", "pread", "preadv", "pwrite", "pwritev")
take_away(os, "getuid", "geteuid", "getgid", "getegid", "getpgid", "getsid", "setsid", "killpg", "chown", "fchown")
take_away(os, "sysconf", "statvfs", "fstatvfs", "posix_fallocate", "posix_fadvise", "sched_getaffinity")
take_away(os, "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC")
take_away(signal, "pthread_sigmask", "pthread_kill", "sigwait", "sigpending", "setitimer", "SIGKILL", "SIGUSR1")
take_away(select, "poll", "epoll")
take_away(time, *[name for name in dir(time) if name.startswith(("CLOCK_", "clock_get"))])
os.supports_dir_fd.clear()
os.supports_fd.clear()
"""


@pytest.fixture(params=["native", "pure"])
def kinetoscope(request, tmp_path):
    """Runs Python without POSIX: a command of ours, or a script."""
    if request.param == "native":
        pytest.importorskip("kinetoscope._native", reason="the module in C was not built")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "sitecustomize.py").write_text(PROLOGUE)
    environment = {**os.environ, "KINETOSCOPE_PURE": str(int(request.param == "pure"))}
    environment["PYTHONPATH"] = str(tmp_path / "taken")

    def run(*arguments: object, script: str | None = None) -> subprocess.CompletedProcess[str]:
        what = ["-m", "kinetoscope"] if script is None else ["-c", script]
        command = [sys.executable, *what, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120)

    return run


def write_trace(path: Path, rank: int = 0, num_spans: int = 20) -> Path:
    spans = [{"ph": "X", "name": f"op {n}", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 5} for n in range(num_spans)]
    header = {"baseTimeNanoseconds": 1_790_857_026_000_000_000, "distributedInfo": {"rank": rank}}
    path.write_text(json.dumps(header | {"traceEvents": spans}))
    return path


def test_nothing_of_posix_is_there(kinetoscope):
    done = kinetoscope(script="import os, signal; print(hasattr(os, 'fork'), hasattr(signal, 'sigwait')); import fcntl")
    assert (done.stdout, done.returncode) == ("False False\n", 1)


def test_a_trace_is_checked_and_described(kinetoscope, tmp_path):
    trace = write_trace(tmp_path / "rank0.json")
    checked = kinetoscope("check", trace)
    assert (checked.stdout, checked.stderr) == (f"{trace}: nothing wrong (20 events).\n", "")
    described = kinetoscope("info", trace)
    assert (described.returncode, described.stderr) == (0, "")
    assert "20" in described.stdout


@pytest.mark.parametrize("name", ["packed.json.gz", "trace.pftrace", "trace.parquet"])
def test_a_trace_is_converted(kinetoscope, tmp_path, name):
    done = kinetoscope("convert", write_trace(tmp_path / "rank0.json"), tmp_path / name)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / name).stat().st_size > 0
    assert not list(tmp_path.glob(".*.partial"))


def test_traces_are_merged(kinetoscope, tmp_path):
    traces = [write_trace(tmp_path / f"rank{rank}.json", rank) for rank in range(2)]
    done = kinetoscope("merge", "--nice", tmp_path / "merged.json", *traces)
    assert (done.returncode, done.stderr) == (0, "")
    merged = json.loads((tmp_path / "merged.json").read_bytes())["traceEvents"]
    assert sum(event["ph"] == "X" for event in merged) == 40


def test_a_trace_is_loaded_again_and_again(kinetoscope, tmp_path):
    write_trace(tmp_path / "rank0.json")
    script = "import kinetoscope\nfor _ in range(2): print(kinetoscope.load('rank0.json').spans.collect().height)"
    done = kinetoscope(script=script)
    assert (done.stdout, done.stderr) == ("20\n20\n", "")


@pytest.mark.parametrize("verb", ["recover", "upload"])
def test_commands_that_need_posix_say_so_in_one_sentence(kinetoscope, tmp_path, verb):
    (tmp_path / "run").mkdir()
    done = kinetoscope(verb, tmp_path / "run")
    assert (done.returncode, done.stdout) == (1, "")
    folder = tmp_path / "run"
    assert done.stderr == (
        f"kinetoscope {verb}: Cannot use {folder} as the folder of a run: this system cannot lock files or open them "
        "relative to a folder (fcntl, dir_fd), which keeps the files of a run's processes apart. "
        "Use Linux or macOS.\n"
    )
