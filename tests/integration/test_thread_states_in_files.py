"""Thread states are the same in each format of a trace, also after a kill."""

import os
import signal
import subprocess
import sys

import pytest

import kinetoscope
from kinetoscope.cli import main
from support.trace_files import trace_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="states of threads are unknown")
SCRIPT = """
import os, signal, sys, time
import kinetoscope

with kinetoscope.profile(sys.argv[1], diagnose=True, quiet=True, torch=False) as profiler:
    for number in profiler.batches(range(14)):
        time.sleep(0.03)
        if number == 10 and sys.argv[2] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
"""


def run_script(folder, ending):
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "train.py", "run", ending]
    return subprocess.run(command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300).returncode


def read_states(path):
    """Return the states of the loop's thread, and the findings."""
    report = kinetoscope.analyze(path, cache=False)
    steps = [(row.running_ns, row.blocked_ns, row.starved_ns) for row in report.steps]
    return steps, [finding.to_dict() for finding in report.findings]


def test_states_are_the_same_in_each_format_and_in_a_merged_and_a_repaired_trace(tmp_path):
    assert run_script(tmp_path, "clean") == 0
    (trace,) = (tmp_path / "run" / "traces").glob("ep*.json.gz")
    steps, findings = read_states(trace)
    assert sum(blocked_ns is not None and blocked_ns > 20_000_000 for _, blocked_ns, _ in steps) >= 5
    assert any("ms/step in sleep" in finding["title"] for finding in findings)

    made = [tmp_path / name for name in ("packed.json.gz", "columns.parquet", "back.json", "merged.json.zst")]
    packed, columns, back, merged = map(str, made)
    assert main(["convert", str(trace), "-o", packed]) == 0
    assert main(["convert", packed, "-o", columns]) == 0
    assert main(["convert", columns, "-o", back]) == 0
    assert main(["merge", "-o", merged, back]) == 0
    cut, repaired = tmp_path / "cut.json", tmp_path / "repaired.json"
    cut.write_text(trace_text(trace).rstrip()[:-2])
    assert main(["check", str(cut), "--repair", str(repaired)]) == 1
    for path in (*made, repaired):
        assert read_states(path) == (steps, findings), path


def test_killed_run_reports_its_waits_and_no_python_overhead(tmp_path):
    assert run_script(tmp_path, "killed") == -signal.SIGKILL
    live = read_states(tmp_path / "run")
    assert main(["recover", str(tmp_path / "run")]) == 0
    for steps, findings in (live, read_states(tmp_path / "run")):
        assert sum(blocked_ns is not None and blocked_ns > 20_000_000 for _, blocked_ns, _ in steps) >= 5
        assert any("ms/step in sleep" in finding["title"] for finding in findings)
        assert not {"python_overhead", "host_bound", "small_kernels"} & {finding["kind"] for finding in findings}
        assert all(finding["saving_ns_per_step"] is None for finding in findings)
