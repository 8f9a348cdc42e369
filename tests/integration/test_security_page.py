"""SECURITY.md: promises that no other test holds, each by what Python's audit hooks see."""

import gzip
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.formats.compression import UnpackedStream

ROOT = Path(__file__).parents[2]
READ = """
import json, os, sys
from pathlib import Path

folder, events = Path(sys.argv[1]), []
names = {"pickle.find_class", "marshal.loads", "os.kill", "subprocess.Popen", "os.posix_spawn"}
names |= {"socket.connect", "socket.bind", "socket.getaddrinfo", "webbrowser.open", "os.exec", "os.system"}

def hook(event, arguments):
    is_signal = event == "os.kill" and arguments[1] == 0  # checks whether a process is alive
    if event in names and not is_signal and not (event == "marshal.loads" and "importlib" in str(sys._getframe(1))):
        events.append([event, repr(arguments)[:200]])

from kinetoscope.cli import main
import kinetoscope.analysis.analyze, kinetoscope.report.page.build, kinetoscope.status, polars
sys.addaudithook(hook)
for command in json.loads(sys.argv[2]):
    try:
        main(command)
    except SystemExit:
        pass
imported = [name for name, module in list(sys.modules.items()) if str(folder) in str(getattr(module, "__file__", ""))]
print(json.dumps({"events": events, "imported": imported}))
"""
RECORD = """
import json, sys
names = {"socket.bind", "socket.connect", "socket.getaddrinfo", "socket.sendto", "os.kill"}
events = []
sys.addaudithook(lambda event, arguments: events.append([event, repr(arguments)[:200]]) if event in names else None)
import kinetoscope
with kinetoscope.profile("run", torch=False, quiet=True, diagnose=True, hangs=True, slow_steps=True) as profiler:
    for batch in profiler.batches(range(20)):
        with profiler.marker("work"):
            sum(range(10_000))
print(json.dumps(events))
"""


class Planted:
    """Pickled, it makes the file ``ran`` when it is loaded."""

    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self):
        return os.mkdir, (str(self.ran),)


@pytest.fixture
def run(tmp_path, monkeypatch) -> Path:
    """The folder of a run."""
    monkeypatch.chdir(tmp_path)
    schedule = kinetoscope.cyclic_schedule(warmup=1, active=4, per="run")
    with kinetoscope.profile("run", schedule=schedule, torch=False, system=False, quiet=True) as profiler:
        for _ in profiler.batches(range(6)):
            pass
    return tmp_path / "run"


def test_reading_unpickles_imports_signals_and_calls_nothing(run, tmp_path):
    """With a pickle under each name that a cache may have, modules beside the traces, and this process as the run's."""
    packed = pickle.dumps(Planted(tmp_path / "ran"))
    for folder in (run, run / "traces"):
        for name in ("kinetoscope", "polars", "msgspec", "sitecustomize", "json"):
            (folder / f"{name}.py").write_text(f"import os; os.mkdir({str(tmp_path / 'ran')!r})")
        for name in (".kinetoscope", "merged_trace.json.cache", "merged_trace.pickle", "cache.pkl"):
            (folder / name).write_bytes(packed)
    (run / "traces" / "pickled.json").write_bytes(packed)
    (run / ".uploads" / "rank0").mkdir(parents=True)
    (run / ".uploads" / "rank0" / "queue.jsonl").write_text('{"path": "traces/merged_trace.json", "url": "s3://b/x"}\n')
    header = {"kinetoscope": {"url": "http://127.0.0.1:1/"}, "url": "http://127.0.0.1:1/"}
    event = {"ph": "X", "name": "__import__('os').mkdir('ran')", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    (run / "traces" / "code.json").write_text(json.dumps(header | {"traceEvents": [event]}))
    commands = [[verb, str(run)] for verb in ("info", "summary", "check", "status", "upload")]
    commands += [
        ["report", str(run), "-o", str(tmp_path / "page.html")],
        ["merge", str(run), "-o", str(tmp_path / "m")],
    ]
    program = [sys.executable, "-P", "-c", READ, str(run), json.dumps(commands)]
    done = subprocess.run(program, cwd=run, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {"events": [], "imported": []}
    assert not (tmp_path / "ran").exists()


def test_recording_opens_no_port_makes_no_connection_and_sends_no_signal(tmp_path):
    done = subprocess.run([sys.executable, "-c", RECORD], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.parametrize(("num_mb", "is_whole"), [(480, False), (160, True)])
def test_compressed_file_over_256_mb_is_read_up_to_400_times_its_size(tmp_path, num_mb, is_whole):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 24)) * (num_mb // 16))
    num_bytes, room = 0, memoryview(bytearray(1 << 20))
    with path.open("rb") as file:
        stream = UnpackedStream(file, str(path))
        while num_read := stream.readinto(room):
            num_bytes += num_read
    assert (num_bytes == num_mb << 20) is is_whole
    assert num_bytes <= (1 << 28) + (1 << 20)
    assert ("grows to over 400 times its size" in stream.damage) is not is_whole


def test_each_test_that_the_page_names_exists():
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)`", page)
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []
