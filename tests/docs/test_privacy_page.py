"""docs/privacy.md: its examples run, and leave nothing of what they hide."""

import re
import sys
import time
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import get_type_hints

import pytest
from msgspec import Struct

import kinetoscope
import kinetoscope.core.job
import kinetoscope.formats
import kinetoscope.pulse
import kinetoscope.spool
import kinetoscope.uploads
from kinetoscope.core.job.ranks import Attempt
from kinetoscope.formats.field_owners import STRUCT_TEXTS, describe_fields

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"


def test_the_page_lists_the_owner_of_each_field():
    lines = PAGE.read_text(encoding="utf-8").split("<!-- fields -->\n")[1].splitlines()
    rows = [f"| {where} | {owner} | {instead} |" for where, owner, instead in describe_fields()]
    assert lines == ["| strings | owner | with `--redact` |", "| --- | --- | --- |", *rows]


def test_each_string_in_a_file_next_to_traces_has_an_owner():
    packages = [kinetoscope.formats, kinetoscope.spool, kinetoscope.pulse, kinetoscope.uploads, kinetoscope.core.job]
    found = {}
    for package in packages:
        for module in map(import_module, (one.name for one in iter_modules(package.__path__, f"{package.__name__}."))):
            types = [
                one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__
            ]
            found |= {one.__name__: _texts_of(one) for one in types if issubclass(one, (Struct, Attempt))}
    listed = {struct: [*fields] for struct, fields in STRUCT_TEXTS.items()}
    inner = (
        "RunRow",
        "BlockedCollective",
        "_MergedFile",
        "_KinetoscopeHeader",
        "_OwnHeader",
        "_Distributed",
        "_ForeignDistributed",
        "_ForeignHeader",
    )
    assert listed == {name: texts for name, texts in found.items() if texts and name not in inner}


def _texts_of(struct):
    hints = get_type_hints(struct)
    return [name for name in hints if hints[name] in (str, str | None, list[str])]


def test_the_examples_run_and_hide_what_they_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert len(examples) == 3
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), {})
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parts[-3] for path in files} >= {"safe", "safest"}
    assert [path for path in files if b"project-x" in path.read_bytes()] == []


@pytest.mark.skipif(sys.platform != "linux", reason="states of threads are unknown")
def test_findings_are_reported_with_the_example_that_passes_only_known_names(tmp_path, monkeypatch):
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
