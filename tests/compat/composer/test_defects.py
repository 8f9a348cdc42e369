"""Each defect of Composer's own profiler that we know, and that ours does not have it. In a real Trainer.

Tested in `test_trainer.py`: markers and operators on one clock; no event while skipping; a complete last batch of a
window; a crash, a kill and an end in the middle of a window; the merged file's upload; ranks over several cycles and
ids of flows in the merged trace; the memory timeline on CPU; a resumed run's later epochs.
"""

import asyncio
import gzip
import json
import os
import stat
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from composer import Callback

from kinetoscope.composer import JSONTraceHandler, Profiler, ProfilerAction, cyclic_schedule
from kinetoscope.composer.json_trace_merger import merge_traces
from support.composer_run.traces import read_events, spans_of
from support.composer_run.trainer import make_trainer

NO_TORCH = {"torch_prof_profile_memory": False, "torch_prof_with_flops": False}


class InBatch(Callback):
    """Does something in batch 1, in the middle of a window."""

    def __init__(self, in_batch):
        self.in_batch = in_batch
        self.result = None

    def before_forward(self, state, logger):
        if state.timestamp.batch == 1:
            self.result = self.in_batch(state.profiler)


def train(in_batch=lambda profiler: None, schedule=None, handler=None, num_batches=3, duration="1ep", **options):
    """Train and call ``in_batch`` in batch 1; return its result, and the handler."""
    handler = handler or JSONTraceHandler()
    schedule = schedule or cyclic_schedule(warmup=0, active=100)
    profiler = Profiler(schedule, [handler], **{"sys_prof_cpu": False, "strict": True} | NO_TORCH | options)
    callback = InBatch(in_batch)
    trainer = make_trainer(profiler, num_batches=num_batches, duration=duration, callbacks=[callback])
    trainer.fit()
    trainer.close()
    return callback.result, handler


def test_a_decorated_function_returns_its_own_result():
    def in_batch(profiler):
        @profiler.marker("added")
        def add(one, other):
            return one + other

        return add(2, 3), add.__name__

    result, _ = train(in_batch)
    assert result == (5, "add")
    assert len(spans_of(read_events())["added"]) == 1


def test_decorated_generators_and_coroutines_stay_generators_and_coroutines():
    def in_batch(profiler):
        @profiler.marker("yields")
        def generate():
            yield from (1, 2)

        @profiler.marker("awaits")()
        async def wait():
            await asyncio.sleep(0)
            return 3

        return list(generate()), asyncio.run(wait())

    result, _ = train(in_batch)
    assert result == ([1, 2], 3)
    spans = spans_of(read_events())
    assert len(spans["yields"]) == len(spans["awaits"]) == 1


def test_recursion_is_recorded_level_by_level():
    def in_batch(profiler):
        marker = profiler.marker("factorial")

        @marker
        def factorial(n):
            return 1 if n == 0 else n * factorial(n - 1)

        return factorial(5)

    result, _ = train(in_batch)
    assert result == 120
    assert len(spans_of(read_events())["factorial"]) == 6


def test_four_threads_of_two_thousand_spans_lose_none_and_have_tracks_of_their_own():
    def in_batch(profiler):
        marker, errors = profiler.marker("work"), []

        def work():
            try:
                for _ in range(2000):
                    with marker:
                        pass
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return errors

    errors, _ = train(in_batch)
    assert errors == []
    spans = spans_of(read_events())["work"]
    assert sorted(Counter(span["tid"] for span in spans).values()) == [2000] * 4


def test_a_markers_first_settings_stay_and_one_warning_names_both(caplog):
    def in_batch(profiler):
        with profiler.marker("mine", actions=[ProfilerAction.ACTIVE], categories=["first"]):
            pass
        with profiler.marker("mine", actions=[ProfilerAction.WARMUP], categories=["second"]):
            pass

    train(in_batch)
    assert [span["cat"] for span in spans_of(read_events())["mine"]] == ["first", "first"]
    (warning,) = [record.getMessage() for record in caplog.records if "'mine'" in record.getMessage()]
    assert "first" in warning
    assert "second" in warning


def test_times_have_nanoseconds_and_never_step_back():
    def in_batch(profiler):
        for _ in range(200):
            with profiler.marker("quick"):
                pass

    train(in_batch)
    spans = spans_of(read_events())["quick"]
    times = [moment for span in spans for moment in (span["ts"], span["end"])]
    assert times == sorted(times)
    assert any(round(moment * 1000) % 1000 for moment in times)
    assert min(span["end"] - span["ts"] for span in spans) > 0


def test_counters_take_nan_and_scalars_of_numpy_and_torch():
    def in_batch(profiler):
        profiler.marker("values").counter({"nan": float("nan"), "numpy": np.float32(0.5), "torch": torch.tensor(3)})

    train(in_batch)
    text = Path("run/traces/merged_trace.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    (event,) = [event for event in read_events() if event["name"] == "values"]
    assert event["args"] == {"numpy": 0.5, "torch": 3}
    assert event["not_finite"] == {"nan": "NaN"}


def test_the_merged_file_has_the_same_read_permissions_as_the_others():
    train()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in Path("run/traces").glob("*.json")}
    umask = os.umask(0)
    os.umask(umask)
    assert modes == {0o666 & ~umask}


def test_saved_traces_are_listed_and_the_oldest_deleted():
    handler = JSONTraceHandler(num_traces_to_keep=2)
    train(schedule=cyclic_schedule(warmup=0, active=1, repeat=0), handler=handler, num_batches=5)
    kept = [path.name for _, (path,) in handler.saved_traces]
    assert kept == ["ep0-ba4-rank0.json", "ep0-ba5-rank0.json"]
    assert sorted(path.name for path in Path("run/traces").glob("ep*")) == kept
    assert len(spans_of(read_events())["event/batch"]) == 5  # deleted traces are in the merged trace


def test_truncated_compressed_and_unsynced_traces_merge_even_onto_an_input():
    train()
    events = [event for event in read_events("run/traces/ep0-ba3-rank0.json") if "kinetoscope" not in event["name"]]
    composers = [event | {"ts": event["ts"] + 1.7e15} if "ts" in event else event for event in events]
    composers = [event for event in composers if event["name"] not in ("clock_sync_timestamp_us", "kinetoscope_header")]
    text = json.dumps(composers)
    Path("comma.json").write_text(text[:-1] + ",")
    Path("open.json").write_text(text[:-1])
    Path("packed.json.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("comma.json", "open.json", "packed.json.gz"):
        merge_traces("merged.json", name)
        assert len(spans_of(read_events("merged.json"))["event/batch"]) == 3, name
    before = len(spans_of(read_events("merged.json"))["event/batch"])
    merge_traces("merged.json", "merged.json")
    assert len(spans_of(read_events("merged.json"))["event/batch"]) == before


def test_a_failed_merge_leaves_no_half_a_file():
    Path("broken.json").write_text("no trace at all")
    with pytest.raises(ValueError, match=r"broken\.json"):
        merge_traces("merged.json", "broken.json")
    assert not Path("merged.json").exists()


def test_the_machine_is_counted_in_true_units_and_the_thread_is_joined():
    def schedule(state):
        return ProfilerAction.ACTIVE

    options = {"sys_prof_cpu": True, "sys_prof_memory": True, "sys_prof_disk": True, "sys_prof_net": True}
    train(schedule=schedule, sys_prof_stats_thread_interval_seconds=0.01, num_batches=8, **options)
    counters = [event for event in read_events() if event["ph"] == "C"]
    assert {"cpu", "process", "memory/virtual", "memory/swap"} <= {event["name"] for event in counters}
    assert not any("field_name" in event["args"] for event in counters)
    total_gib = psutil.virtual_memory().total / 2**30
    used = [event["args"]["used_gib"] for event in counters if event["name"] == "memory/virtual"]
    assert all(0 < value < total_gib for value in used)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("kinetoscope")]


@pytest.mark.parametrize("arguments", [{"warmup": 0, "active": 0}, {"active": 0}, {"wait": -1}])
def test_an_impossible_schedule_is_refused_when_it_is_made(arguments):
    with pytest.raises(ValueError, match=r"active|wait"):
        cyclic_schedule(**arguments)
