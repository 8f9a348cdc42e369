"""Traces in which bytes were changed, lost, repeated or pasted: every command reads them, or ends with a sentence."""

import gzip
import json
import os
import random
from contextlib import suppress
from pathlib import Path

import pytest

from fuzz.corpus import write_corpus
from kinetoscope.errors import KinetoscopeError, TraceFileError
from kinetoscope.frames.load import load_one
from kinetoscope.merge.check import check_trace, repair_trace
from kinetoscope.merge.merge_traces import merge_traces

NUM_MUTATED = int(os.environ.get("KINETOSCOPE_MUTATED_TRACES", "50"))
"""`make test-sanitized` takes more."""

REPAIRED = {"syntax", "events", "nesting", "tracks", "times", "flows"}


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> list[bytes]:
    """Small traces with every kind of event, and one that is longer than a piece that is read at once."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    found = [path.read_bytes() for path in sorted(folder.iterdir())]
    return [*found, found[0].replace(b"}]", b"}," + found[0].strip(b"[]") * 3000 + b"]")]


def mutate(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """Return a trace with one to four faults, as disks, networks and scripts make them."""
    damaged = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 4])):
        begin = chance.randrange(len(damaged) + 1)
        end = min(len(damaged), begin + chance.choice([1, 8, 64, 4000]))
        fault = chance.randrange(7)
        if fault == 0 and begin < len(damaged):
            damaged[begin] = chance.randrange(256)
        elif fault == 1:
            del damaged[begin:]
        elif fault == 2:
            damaged[begin:end] = chance.randbytes(chance.randrange(64))
        elif fault == 3:
            damaged[begin:begin] = damaged[begin:end]
        elif fault == 4:
            damaged[begin:begin] = other  # a document that is pasted between events, or into one
        elif fault == 5:
            damaged[begin:begin] = chance.choice([b'"', b"\\", b"[", b"}", b"nan", b"1e999", b"\0", b'"ts":', b"\xff"])
        else:
            damaged += chance.choice([b"\n", b",", b""]) + other
    return bytes(damaged)


@pytest.mark.parametrize("part", range(10))
def test_trace_with_any_damaged_bytes_is_read_or_refused_in_a_sentence(traces, tmp_path, part):
    for seed in range(part, NUM_MUTATED, 10):
        chance = random.Random(seed)
        content = mutate(chance.choice(traces), chance.choice(traces), chance)
        is_packed = chance.random() < 0.2
        path, output = tmp_path / f"rank{seed}.json{'.gz' * is_packed}", tmp_path / "out.json"
        path.write_bytes(gzip.compress(content, 1) if is_packed else content)
        check = check_trace(path)
        repaired = None
        with suppress(TraceFileError):
            repaired = repair_trace(path, output)
        if repaired is None:
            assert check.findings, seed
            continue
        assert repaired.check == check, seed
        assert not {finding.kind for finding in check_trace(output).findings} & REPAIRED, seed
        json.loads(output.read_bytes(), parse_constant=pytest.fail)
        read_in_other_ways(path, tmp_path / "merged.json")


def read_in_other_ways(path: Path, merged: Path) -> None:
    """Merge and load the trace; other errors than ours end the test."""
    with suppress(KinetoscopeError):
        merge_traces(merged, path)
    with suppress(KinetoscopeError):
        load_one(str(path), cache=False).events.collect()
