"""Garbage collections for what torch's compiler made are a part of compiling, and no finding of their own."""

from dataclasses import replace

import kinetoscope
from trainsim import stories
from trainsim.analyses import write_changed


def kinds_with_pauses(folder, name, *, within):
    """Return the findings where each compilation has a GC pause of this name and length, inside of it or after."""

    def add_pauses(trace):
        for compiling in [event for event in trace["traceEvents"] if event.get("cat") == "compile"]:
            begin = compiling["ts"] + (0 if within else compiling["dur"])
            pause = {"name": name, "cat": "gc", "ts": begin, "args": {"generation": 2, "line": "train.py:9"}}
            trace["traceEvents"].append(compiling | pause)

    settings = replace(stories.RECOMPILATION, num_ranks=1, num_steps=9)
    report = kinetoscope.analyze(write_changed(add_pauses, settings, folder), cache=False)
    return [(found.kind, found.confidence) for found in report.findings]


def test_collections_while_something_is_compiled_are_no_finding(tmp_path):
    assert kinds_with_pauses(tmp_path / "in", "gc generation 2", within=True) == [("recompilation", "high")]
    assert ("garbage_collection", "high") in kinds_with_pauses(tmp_path / "after", "gc generation 2", within=False)


def test_gc_pauses_started_in_the_compiler_are_no_finding_next_to_its_spans(tmp_path):
    kinds = kinds_with_pauses(tmp_path, "gc generation 2, of the compiler", within=False)
    assert kinds[0] == ("recompilation", "high")
    assert "garbage_collection" not in dict(kinds)
