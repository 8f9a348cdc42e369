"""The message at the end of a run: what it recorded and where, on a terminal or in the log."""

import logging
import os
import pty
import subprocess
import sys

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.testing import MemoryTraceHandler

ALWAYS = lambda state: ProfilerAction.ACTIVE  # noqa: E731
NEVER = lambda state: ProfilerAction.SKIP  # noqa: E731


def run(profiler, batches=6):
    with profiler:
        for _ in profiler.batches(range(batches)):
            pass


def test_a_line_in_the_log_says_what_was_left_and_which_command_to_use(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, "kinetoscope")
    run(Profiler(ALWAYS, JSONTraceHandler("runs/mine/traces")))
    (line,) = [message for message in caplog.messages if message.startswith("Kinetoscope:")]
    assert line == (
        "Kinetoscope: 1 window recorded in 6 batches, saved to runs/mine/traces/merged_trace.json. Open it in "
        "https://ui.perfetto.dev, or run: kinetoscope summary runs/mine"
    )


def test_quiet_stops_the_line_and_not_the_warning(caplog):
    caplog.set_level(logging.INFO, "kinetoscope")
    run(Profiler(ALWAYS, MemoryTraceHandler(), quiet=True))
    assert caplog.messages == []
    run(Profiler(NEVER, MemoryTraceHandler(), quiet=True))
    assert "the schedule answered skip for each of the 6 batches" in caplog.text


def test_on_a_terminal_the_line_is_printed_once(tmp_path):
    program = """
import kinetoscope
profiler = kinetoscope.profile("run", torch=False, system=False)
with profiler:
    for _ in profiler.batches(range(6)):
        pass
profiler.close()
"""
    terminal, stderr = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stderr=stderr)
    os.close(stderr)
    said = b""
    try:
        while piece := os.read(terminal, 4096):
            said += piece
    except OSError:  # the other end has closed
        pass
    os.close(terminal)
    assert process.wait(60) == 0
    assert said.count(b"Kinetoscope: 1 window recorded in 6 batches") == 1


def test_handlers_and_sources_may_lack_any_method(caplog):
    class OnlyCycles:
        cycles = 0

        def process_cycle(self, cycle):
            self.cycles += 1

    class OnlyBatches:
        batches = 0

        def batch_end(self, state, logger):
            self.batches += 1

    handler, source = OnlyCycles(), OnlyBatches()
    run(Profiler(ALWAYS, handler, sources=[source], strict=True))
    assert (handler.cycles, source.batches) == (1, 6)
    assert caplog.messages == []
