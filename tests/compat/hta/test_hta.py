"""Our numbers equal those of HolisticTraceAnalysis itself, on any trace: `make test-hta TRACES=DIR`."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from support.hta_comparison.hta_numbers import hta_numbers
from support.hta_comparison.our_numbers import kinds_of_hta, our_numbers
from support.hta_comparison.reading import as_hta_reads, read_trace, without_miscounts, write_trace
from trainsim import random_settings, simulate

FOLDER = Path(__file__).parents[2] / "data" / "hta"
GIVEN = sorted(Path(os.environ.get("KINETOSCOPE_TRACES") or os.devnull).glob("*.json*"))
SEEDS = [seed for seed in range(60) if random_settings(seed).has_device][:12]


def assert_equal(path, folder):
    theirs = hta_numbers(without_miscounts(path, folder))
    assert our_numbers(as_hta_reads(path, folder)) == theirs | {"kinds": kinds_of_hta(theirs["kinds"])}


@pytest.mark.parametrize("path", GIVEN, ids=lambda path: path.name)
def test_given_traces(path, tmp_path):
    assert_equal(path, tmp_path)


@pytest.mark.parametrize("seed", SEEDS)
def test_simulated_traces(seed, tmp_path):
    settings = random_settings(seed)
    settings = replace(settings, step_ns=min(settings.step_ns, 3_000_000), num_cycles=1, missing_ranks=())
    assert_equal(simulate(settings).write(tmp_path / "run")[-1], tmp_path)


def test_hta_still_says_the_numbers_that_are_committed(tmp_path):
    committed = json.loads((FOLDER / "numbers.json").read_text(encoding="utf-8"))
    assert committed == {
        name: hta_numbers(without_miscounts(FOLDER / f"{name}.json.gz", tmp_path)) for name in committed
    }


def test_hta_counts_an_operator_of_the_host_that_has_a_stream_as_work_of_the_device(tmp_path):
    trace = read_trace(FOLDER / "data_parallel.json.gz")
    operator = next(event for event in trace["traceEvents"] if event["name"] == "aten::linear")
    operator["args"]["stream"] = 7
    path = write_trace(trace, trace["traceEvents"], tmp_path / "with_stream.json")
    assert "aten::linear" in hta_numbers(path)["kernels"]
    assert_equal(path, tmp_path)


def test_hta_counts_synchronisation_events_as_work_of_the_device(tmp_path):
    path = FOLDER / "data_parallel.json.gz"
    with_events, without = hta_numbers(path), hta_numbers(without_miscounts(path, tmp_path))
    assert with_events["temporal"]["other"] > without["temporal"]["other"]


def test_hta_cannot_read_a_run_without_a_device(tmp_path):
    path = simulate(replace(random_settings(0), has_device=False, layout="data", has_cuda_graph=False)).write(tmp_path)[
        0
    ]
    with pytest.raises(IndexError):
        hta_numbers(path)
