"""Runs every command on a run's folder, in this one process, and prints the result of each as a line of JSON.

Arguments: the folder, a folder for output, a seed for the order, and the URL to which uploads are allowed.
"""

import contextlib
import ctypes
import io
import json
import os
import random
import re
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from urllib.parse import quote

import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.cli import main
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.errors import KinetoscopeError
from kinetoscope.server.run_lists import RunLists
from kinetoscope.server.site import Site

_BECOME_SUBREAPER = 36  # prctl(2): orphaned processes become ours, and can be waited for
_MAX_BYTES = 1 << 20
_MAX_S = 5  # an upload that a store refuses is tried again for minutes


def visit(run: str, out: str, seed: int, url: str) -> None:
    """Run the commands, in an order that depends on the seed."""
    traces = f"{run}/traces"
    commands = {
        "info": ["info", run],
        "status": ["status", run],
        "summary": ["summary", run],
        "report": ["report", run, "-o", f"{out}/page.html", "--force"],
        "whatif": ["whatif", run],
        "diff": ["diff", run, traces],
        "summary of parquet": ["summary", f"{traces}/some.parquet"],
        "check": ["check", traces, "--repair", f"{out}/repaired", "--jobs", "1"],
        "convert": ["convert", traces, "-o", f"{out}/converted", "--to", ".json.gz", "--jobs", "1"],
        "parquet": ["convert", f"{traces}/ep0-ba2-rank0.json", "-o", f"{out}/one.parquet"],
        "back": ["convert", f"{traces}/some.parquet", "-o", f"{out}/back.json"],
        "list": ["upload", run],
        "merge": ["merge", "-o", f"{out}/merged.json", traces],
        "upload": ["upload", run, "--to", url, "--retry-for", "0.2"],
        "recover": ["recover", run],
    }
    calls = {name: lambda command=command: main(command) for name, command in commands.items()}
    calls |= {"load": lambda: _load(run), "start": lambda: _start(run, url), "view": lambda: _view(run)}
    order = sorted(calls)
    random.Random(seed).shuffle(order)
    for name in order:
        print(json.dumps({"command": name} | _capture(calls[name])), flush=True)
    _wait_for_all()
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({"peak_bytes": peak << 10}), flush=True)


def _capture(call) -> dict:
    """Return a command's output and exit code, or its traceback."""
    written, began_s = io.StringIO(), time.monotonic()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        try:
            status = call()
        except SystemExit as error:
            status = error.code
        except Exception:
            traceback.print_exc()
            status = "raised"
    return {"status": status, "written": written.getvalue(), "seconds": time.monotonic() - began_s}


def _load(run: str) -> int:
    try:
        loaded = kinetoscope.load(run)
        loaded.spans.collect()
        loaded.tracks.collect()
    except KinetoscopeError:
        return 1
    return 0


def _view(run: str) -> int:
    """Open everything that the page of the run leads to, and some more, as a browser does."""
    folder = RunFolder(run)
    site = Site(RunLists(folder, "https://ui.perfetto.dev"))
    names = [os.path.relpath(path, run) for path in Path(run).rglob("*")]
    waiting = ["/", *(f"/{kind}/{quote(os.fsencode(name))}" for kind in ("run", "trace", "report") for name in names)]
    for address in waiting:
        answer = site.answer(address)
        content = answer.page.encode(errors="backslashreplace")
        if answer.file is not None:
            with answer.file as file:
                content = file.read(_MAX_BYTES)  # a file may be huge
        waiting += {link.decode() for link in re.findall(b'"(/[^"]*)"', content)} - {*waiting}
        if b"SECRET" in content:
            print(f"{address} shows what is outside")
    return 0


def _start(run: str, url: str) -> int:
    """Start a run with the same folder. It may save what it likes, but must not end training."""
    handler = JSONTraceHandler(f"{run}/traces", overwrite=True)
    try:
        with Profiler(
            lambda state: ProfilerAction.ACTIVE_AND_SAVE, handler, upload_to=url, close_timeout_s=3
        ) as run_again:
            for _ in run_again.batches(range(2)):
                with run_again.marker("work"):
                    pass
        list(handler.saved_traces)
    except KinetoscopeError:
        return 1
    return 0


def _wait_for_all() -> None:
    """Wait for the processes that a command has started."""
    until = time.monotonic() + _MAX_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < until:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                time.sleep(0.02)
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)
    visit(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
