"""docs/privacy.md: its examples run, and leave nothing of what they hide."""

import re
import sys
import time
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.recording.recorder_choice import IS_PURE

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"


def test_the_examples_run_and_hide_what_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(examples) == 3
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), {})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parts[-3] for path in files} >= {"safe", "safest"}
    assert [path for path in files if b"project-x" in path.read_bytes()] == []


@pytest.mark.skipif(IS_PURE or sys.platform != "linux", reason="what a thread waits for is not known")
def test_with_the_example_that_lets_only_known_names_through_findings_are_still_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[1]
    names = {}
    exec(compile(example, str(PAGE), "exec"), names)
    with kinetoscope.profile("run", diagnose=True, redact=names["redact"], torch=False, quiet=True) as profiler:
        for _ in profiler.batches(range(14)):
            time.sleep(0.05)
    report = kinetoscope.analyze("run", cache=False)
    assert [row.blocked_ns is not None for row in report.steps] == [True] * 10
    blocked = next(finding for finding in report.findings if finding.kind == "blocked")
    assert "ms/step in sleep" in blocked.title
    assert blocked.where.lines == ()
