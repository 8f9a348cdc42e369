"""Redacted outputs do not depend on a user's words: two runs that differ in them give the same bytes."""

import gzip
import re
import shutil
import subprocess
import sys
from textwrap import dedent

import pytest

from kinetoscope.analysis.analyze import analyze_sources
from kinetoscope.analysis.summaries import Selection
from kinetoscope.cli import main
from kinetoscope.formats.anonymizer import Anonymizer
from kinetoscope.formats.chrome import read_chrome
from kinetoscope.formats.slow_steps import SlowStep, append_slow_step
from kinetoscope.formats.trace_redaction import write_redacted
from kinetoscope.frames.load import list_traces, load_one
from kinetoscope.pulse.pulses import find_pulses
from kinetoscope.pulse.stalls import GroupState, StalledPhase, StallFile, ThreadStack

pytest.importorskip("torch")

WORDS = {  # ordinary ones, of one length so that files in which lengths are stored stay valid; some are ours
    b"titan": b"share",
    b"falcon": b"gather",
    b"walnut": b"device",
    b"garden": b"memory",
    b"silver": b"kernel",
    b"harbour": b"process",
    b"cherry": b"loader",
    b"lantern": b"forward",
    b"Meadow": b"Marker",
    b"pebble": b"repair",
}
PROGRAM = """
    import time
    import torch
    import kinetoscope

    class Meadow(torch.utils.data.Dataset):
        def __len__(self):
            return 96
        def __getitem__(self, index):
            time.sleep(0.0002)
            return torch.randn(8)

    def lantern(model, batch):
        with torch.profiler.record_function("cherry of the garden"):
            return model(batch).sum()

    def silver():
        model = torch.nn.Linear(8, 8)
        harbour = []
        loader = torch.utils.data.DataLoader(Meadow(), batch_size=8)
        handlers = kinetoscope.JSONTraceHandler()  # text, whose words can be replaced
        settings = {"run_name": "titan", "diagnose": True, "quiet": True}
        with kinetoscope.profile("runs/walnut", handlers=handlers, **settings) as profiler:
            for batch in profiler.batches(loader):
                with profiler.marker("garden of walnut", categories=("cherry", "pebble")):
                    lantern(model, batch).backward()
                profiler.marker("pebble").counter({"silver": 1})
                harbour.append(torch.zeros(200_000))

    silver()
"""


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The folder of a recorded run, and a copy in which the words of its user are other ones."""
    folder = tmp_path_factory.mktemp("recorded")
    program = folder / "falcon.py"
    program.write_text(dedent(PROGRAM))
    subprocess.run([sys.executable, program.name], cwd=folder, check=True, capture_output=True)
    recorded = folder / "runs" / "walnut"
    _add_pulse_files(recorded)
    other = tmp_path_factory.mktemp("copied") / "runs" / "device"
    shutil.copytree(recorded, other)
    for path in other.rglob("*"):
        if path.is_file():
            path.write_bytes(_in_other_words(path.read_bytes()))
    return recorded, other


def _in_other_words(content):
    for word, another in WORDS.items():
        assert len(word) == len(another)
        content = content.replace(word, another)
    return content


def _add_pulse_files(folder):
    """A hang and a slow step, as the run would have saved them."""
    (pulse,) = next(iter(find_pulses(folder).values()))
    process = pulse.header.process
    stack = ThreadStack("silver", True, ["falcon.py(3): lantern"])
    group = GroupState("garden", [0, 1], 7, "cherry")
    times = {"since_ns": 1, "found_ns": 9 * 10**9, "limit_ns": 10**9}
    phase = StalledPhase("backward", True, 3, **times, location="falcon.py:3", stacks=[stack], groups=[group])
    start = process.attempt.start
    (folder / "pulse" / f"{start}.stuck").write_bytes(StallFile(process.ranks, process.attempt, [phase]).encoded())
    about = {"start": start, "restart": 0, "rank": 0, "step": 5, "epoch": 0, "begin_ns": 1}
    times = {"duration_ns": 900, "usual_ns": 10, "phase": 2, "phase_ns": 890, "phase_usual_ns": 2}
    slow = SlowStep(**about, **times, line="falcon.py:3", num_samples=9, num_on_line=9)
    (folder / "slow_steps").mkdir()
    append_slow_step(folder, slow)


def _report(folder, step=None):
    anonymizer = Anonymizer(step)
    traces = [load_one(name, cache=False).anonymized(anonymizer) for name in list_traces(str(folder))]
    return analyze_sources(
        traces, Selection(step=step), cache=False, titled_by=[str(folder)], anonymizer=anonymizer
    ).to_json()


def _words_in(content):
    return [word for word in WORDS if word in content]


def test_the_copies_differ_in_the_words_of_the_user(copies):
    recorded, other = ({path.name: path.read_bytes() for path in copy.rglob("*") if path.is_file()} for copy in copies)
    everything = b"".join(recorded.values())
    assert _words_in(everything) == list(WORDS)
    assert not _words_in(b"".join(other.values()))


def test_redacted_pages_are_equal(copies, tmp_path):
    pages = [tmp_path / "1.html", tmp_path / "2.html"]
    for copy, page in zip(copies, pages, strict=True):
        assert main(["report", str(copy), "--redact", "--no-cache", "-o", str(page)]) == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_redacted_summaries_are_equal_and_have_the_findings(copies):
    recorded, other = map(_report, copies)
    assert recorded == other
    assert not _words_in(recorded.encode())
    assert "hang" in recorded


@pytest.mark.parametrize("name", ["merged_trace.json", "ep0-ba12-rank0.json"])
def test_redacted_traces_are_equal(copies, tmp_path, name):
    for number, copy in enumerate(copies):
        with (tmp_path / str(number)).open("wb") as stream:
            write_redacted(read_chrome(copy / "traces" / name), stream, Anonymizer())
    recorded, other = ((tmp_path / str(number)).read_bytes() for number in range(2))
    assert recorded == other
    assert not _words_in(recorded)


def test_redacted_errors_are_equal(copies, tmp_path, capsys):
    errors = []
    for copy in copies:
        traces = [*(copy / "traces").glob("ep*.json")]
        second = tmp_path / f"{copy.name}.json"
        second.write_bytes(traces[0].read_bytes().replace(b'"world_size":1', b'"world_size":2'))
        assert main(["report", str(traces[0]), str(second), "--redact", "--no-cache", "-o", str(tmp_path / "x")]) != 0
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert re.search(r"is 1 in file \d+, and 2 in file \d+\.", errors[0])


@pytest.mark.parametrize(
    "content",
    [b"", b"<titan>", b'{"titan": 1}', gzip.compress(gzip.compress(b"[]")), b'["titan"'],
    ids=["empty", "markup", "object", "packed twice", "truncated"],
)
def test_redacted_errors_on_files_that_cannot_be_read_are_equal(tmp_path, capsys, content):
    errors = []
    for number, text in enumerate((content, _in_other_words(content))):
        path = tmp_path / ("share", "titan")[number] / "trace.json"
        path.parent.mkdir()
        path.write_bytes(text)
        assert main(["report", str(path), "--redact", "--no-cache", "-o", str(tmp_path / "x")]) == 1
        errors.append(capsys.readouterr().err)
    assert errors[0] == errors[1]
    assert errors[0].startswith("error: Cannot read the trace file 1: ")
    assert not _words_in(errors[0].encode())
