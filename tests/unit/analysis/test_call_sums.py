"""Summaries of many ranks: small while they are sent or wait, and joined in batches as if all at once."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import kinetoscope
from kinetoscope.analysis.call_sums import join_sums
from kinetoscope.analysis.compressed_pickle import pack
from kinetoscope.analysis.cpu.operators import operator_rows
from kinetoscope.analysis.gpu.kernels import kernel_rows
from kinetoscope.analysis.summaries import Selection, sum_trace
from trainsim import Settings, simulate

SETTINGS = Settings(num_ranks=3, num_layers=2, num_warmup_steps=1, step_ns=1_200_000, has_memory=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three ranks of about a thousand events."""
    folder = tmp_path_factory.mktemp("traces")
    simulate(SETTINGS).write(folder)
    return folder


def sums_of(file, **options):
    (window,) = sum_trace(str(file), selection=Selection(), cache=False, **options).windows
    return window.sums


@pytest.mark.parametrize("num_copies", [1, 22, 65])
def test_sums_that_are_joined_in_batches_are_those_of_all_windows(num_copies, folder):
    three = [sums_of(file) for file in sorted(folder.glob("*.json"))]
    joined, of_three = join_sums([pack(sums) for sums in three] * num_copies), join_sums(three)
    for rows, field in ((operator_rows, "operators"), (kernel_rows, "kernels")):
        once = {(row.name, getattr(row, "shapes", "")): row for row in rows(getattr(of_three, field))}
        many = rows(getattr(joined, field))
        assert len(many) == len(once)
        for row in many:
            one = once[row.name, getattr(row, "shapes", "")]
            grown = {"num_calls", "total_ns", "self_ns"} | {"device_ns", "flops", "bytes"} & vars(row).keys()
            changes = {name: getattr(one, name) and getattr(one, name) * num_copies for name in grown}
            assert row == replace(one, **changes)
    assert times_in(joined) == {key: time_ns * num_copies for key, time_ns in times_in(of_three).items()}


def times_in(sums):
    rows = sums.by_step.explode("step", "time").rows()
    return {row[:-1]: row[-1] for row in rows}


def test_the_summary_of_one_rank_of_many_is_small(folder):
    summary = sum_trace(str(folder / "rank0.json"), selection=Selection(), cache=False, with_graph=False)
    assert len(pickle.dumps(summary)) < 16_000


def test_results_of_executor_processes_are_compressed(folder):
    class Watched(ThreadPoolExecutor):
        def submit(self, fn, /, *args, **kwargs):
            future = super().submit(fn, *args, **kwargs)
            sent.append(future)
            return future

    sent = []
    with Watched(1) as pool:
        report = kinetoscope.analyze(folder, cache=False, executor=pool)
    assert report.to_dict() == kinetoscope.analyze(folder, cache=False).to_dict()
    plain = len(pickle.dumps(sum_trace(str(folder / "rank0.json"), selection=Selection(), cache=False)))
    assert [len(future.result()) < plain / 3 for future in sent] == [True] * 3
