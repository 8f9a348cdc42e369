"""Loops as new users write them, in processes of their own: each writes a trace, or says why not."""

import textwrap

import pytest

from support.fork_server import run_command, run_program
from support.trace_files import trace_json

PRELUDE = """
import itertools, os, sys
import kinetoscope
from kinetoscope import cyclic_schedule

def train(batch):
    with kinetoscope.marker("train"):
        pass

def validate(batch):
    with kinetoscope.marker("validate"):
        pass
"""

TRACED = {
    "epochs": """
        with kinetoscope.profile("run", torch=False) as profiler:
            for epoch in range(3):
                for batch in profiler.batches(range(3)):
                    train(batch)
        """,
    "steps": """
        with kinetoscope.profile("run", torch=False) as profiler:
            for batch in range(9):
                train(batch)
                profiler.step()
        """,
    "infinite": """
        with kinetoscope.profile("run", torch=False) as profiler:
            for batch in profiler.batches(itertools.count()):
                train(batch)
                if batch == 20:
                    break
        """,
    "nested validation": """
        with kinetoscope.profile("run", torch=False) as profiler:
            for batch in profiler.batches(range(9)):
                train(batch)
                if batch % 3 == 0:
                    for other in profiler.batches(range(2)):
                        validate(other)
        """,
    "break": """
        with kinetoscope.profile("run", torch=False) as profiler:
            for epoch in range(3):
                for batch in profiler.batches(range(100)):
                    train(batch)
                    if batch == 2:
                        break
        """,
    "exception": """
        with kinetoscope.profile("run", torch=False) as profiler:
            for batch in profiler.batches(range(100)):
                train(batch)
                if batch == 4:
                    raise ValueError("loss is nan")
        """,
    "fork": """
        with kinetoscope.profile("run", torch=False) as profiler:
            for batch in profiler.batches(range(9)):
                train(batch)
                if batch == 3 and os.fork() == 0:
                    os._exit(0)
        """,
    "notebook cell twice": """
        for cell in range(2):
            profiler = kinetoscope.profile("run", torch=False, overwrite=True).start()
            for batch in profiler.batches(range(9)):
                train(batch)
        """,
}

UNTRACED = {
    "short epochs": (
        """
        schedule = cyclic_schedule(skip_first=10, active=4)
        with kinetoscope.profile("run", torch=False, schedule=schedule) as profiler:
            for epoch in range(3):
                for batch in profiler.batches(range(10)):
                    train(batch)
        """,
        "Nothing was recorded: the first batch to record is 11; the longest epoch had 10. Pass a schedule with a "
        'smaller skip_first or wait. To count batches across epochs pass per="run" to cyclic_schedule',
    ),
    "no step": (
        """
        with kinetoscope.profile("run", torch=False) as profiler:
            for batch in range(100):
                train(batch)
        """,
        "Nothing was recorded: no step() was called",
    ),
    "a short run": (
        """
        schedule = cyclic_schedule(skip_first=10, wait=5, active=4, per="run")
        with kinetoscope.profile("run", torch=False, schedule=schedule) as profiler:
            for batch in range(12):
                profiler.step()
        """,
        "Nothing was recorded: the first batch to record is 16; the run had 12.",
    ),
    "a schedule of one's own": (
        """
        with kinetoscope.profile("run", torch=False, schedule=lambda state: "skip") as profiler:
            for batch in profiler.batches(range(3)):
                train(batch)
        """,
        "Nothing was recorded: the schedule returned skip for each of the 3 batches.",
    ),
}


def run(tmp_path, program):
    return run_program(PRELUDE + textwrap.dedent(program), folder=tmp_path)


@pytest.mark.parametrize("loop", TRACED)
def test_a_loop_as_people_write_it_leaves_a_trace(tmp_path, loop):
    done = run(tmp_path, TRACED[loop])
    if loop == "exception":
        assert done.stderr.rstrip().endswith("ValueError: loss is nan")
    else:
        assert done.returncode == 0, done.stderr
    assert "Nothing was recorded" not in done.stderr
    trace = trace_json(tmp_path / "run" / "traces" / "merged_trace.json.gz")
    names = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {"train", "event/batch"} <= set(names)
    assert names.count("train") == names.count("event/batch")
    assert not (tmp_path / "run" / "live").exists()


@pytest.mark.parametrize("loop", UNTRACED)
def test_a_run_that_recorded_nothing_says_why_once_and_what_to_change(tmp_path, loop):
    program, sentence = UNTRACED[loop]
    done = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Nothing was recorded") == 1
    assert sentence in done.stderr


def test_every_command_reports_why_a_run_recorded_nothing(tmp_path):
    program, sentence = UNTRACED["a short run"]
    run(tmp_path, program)
    commands = (
        "check run",
        "convert run -o out.json.gz",
        "diff run run",
        "info run",
        "merge run -o out.json",
        "recover run",
    )
    commands += ("recover run", "report run", "summary run", "summary run/traces", "whatif run --faster x=2")
    for command in commands:
        failed = run_command(*command.split(), folder=tmp_path)
        assert sentence in failed.stderr, (command, failed)
        assert failed.returncode in (1, 2), command
