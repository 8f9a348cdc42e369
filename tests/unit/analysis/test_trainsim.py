"""Guarantees of the simulator of training runs, so that its truth can be trusted."""

import itertools
import json
import random
from collections import defaultdict
from dataclasses import replace
from typing import get_args

import polars as pl
import pytest

import kinetoscope
from support.trace_processor.trace_processor import load as load_in_perfetto
from trainsim import FINDINGS, Fault, Settings, healthy_settings, planted_settings, random_settings, simulate
from trainsim.actions import (
    AwaitTasks,
    Close,
    CloseStep,
    Launch,
    Open,
    OpenStep,
    StartRecording,
    StopRecording,
    Submit,
    Synchronize,
    Work,
)
from trainsim.engine import CallKey, Engine, Host, Kernel, Loader
from trainsim.run import RankRun, SimulatedRun, recorded_windows
from trainsim.scenarios import fault_of
from trainsim.settings import FaultKind

SEEDS = range(12)


@pytest.fixture(scope="module")
def runs():
    """Runs of many shapes, with and without faults."""
    return [simulate(random_settings(seed)) for seed in SEEDS]


def windows_of(run):
    return [window for rank in run.ranks for window in rank.windows]


def device_spans(window):
    return [span for span in window.queued if span.kernel.kind != "gloo"]


def written(run, folder):
    return {path.name: path.read_bytes() for path in run.write(folder)}


def new_host(engine, rank, program):
    loader = Loader(num_workers=0, num_ahead=0, make_ns=[], pin_ns=0)
    return Host(engine, rank, program, loader)


# -- a run that can be done by hand


def test_a_kernel_begins_after_its_launch_and_the_kernel_before_it():
    kernel = Kernel("gemm", "kernel", "compute", 10_000, gap_ns=1_000)
    program = [Launch("cudaLaunchKernel", "7", (kernel,), 3_000, 4_000) for _ in range(2)]
    engine = Engine()
    host = new_host(engine, 0, [*program, Synchronize("cudaStreamSynchronize", 2_500, stream="7")])
    engine.run([host])
    assert [(span.begin_ns, span.end_ns) for span in host.queued] == [(4_000, 14_000), (15_000, 25_000)]
    assert host.now_ns == 27_000, "the call returns two microseconds after the second kernel's end"


def test_a_collective_takes_its_time_from_when_the_last_rank_has_begun():
    engine, call = Engine(), CallKey("0", 1, "allreduce", 8, (0, 1))
    part = Kernel("nccl", "kernel", "communication", 5_000, call=call)
    hosts = [new_host(engine, rank, [Work(rank * 9_000), Launch("c", "20", (part,), 3_000, 4_000)]) for rank in (0, 1)]
    engine.run(hosts)
    spans = [host.queued[0] for host in hosts]
    assert [(span.begin_ns, span.end_ns) for span in spans] == [(4_000, 18_000), (13_000, 18_000)]


def test_a_loop_on_the_cpu_waits_for_the_thread_that_communicates():
    engine, call = Engine(), CallKey("0", 1, "allreduce", 8, (0, 1))
    part = Kernel("gloo:all_reduce", "user_annotation", "gloo", 5_000, call=call)
    program = [Open("c10d::allreduce_"), Submit("gloo", part, 1_000), Work(2_000), Close(), AwaitTasks("gloo")]
    hosts = [new_host(engine, rank, [Work(rank * 9_000), *program]) for rank in (0, 1)]
    engine.run(hosts)
    assert [host.now_ns for host in hosts] == [15_000, 15_000]


def test_ranks_that_wait_for_one_another_for_ever_are_an_error():
    engine, call = Engine(), CallKey("0", 1, "allreduce", 8, (0, 1))
    part = Kernel("nccl", "kernel", "communication", 5_000, call=call)
    alone = new_host(engine, 0, [Launch("c", "20", (part,), 3_000, 4_000), Synchronize("cudaDeviceSynchronize", 2_500)])
    with pytest.raises(RuntimeError, match=r"ranks \[0\] wait for ever"):
        engine.run([alone])


def test_workers_make_batches_ahead_as_far_as_they_may():
    loader = Loader(num_workers=2, num_ahead=1, make_ns=[100] * 6, pin_ns=10)
    there_ns, now_ns = [], 0
    for batch in range(6):
        there_ns.append(loader.fetch(batch, now_ns))
        now_ns = max(now_ns, there_ns[-1]) + 5
        loader.returned(now_ns)
    # Two at a time; batch 2 is requested when the loop has batch 0, at 115, and so on.
    assert there_ns == [110, 120, 225, 235, 340, 350]


def test_without_workers_the_loop_makes_its_batches_itself():
    loader = Loader(num_workers=0, num_ahead=2, make_ns=[100, 300], pin_ns=10)
    assert [loader.fetch(batch, 1_000) for batch in range(2)] == [1_100, 1_300]


def test_truth_of_a_hand_computed_step():
    kernel = Kernel("gemm", "kernel", "compute", 10_000, gap_ns=0)
    launch = Launch("cudaLaunchKernel", "7", (kernel,), 3_000, 4_000)
    product = [Open("aten::mm", phase="forward"), Work(500), launch, Work(500), Close()]
    step = [Work(1_000), *product, Synchronize("cudaStreamSynchronize", 2_500, stream="7"), Work(2_000), launch]
    program = [StartRecording(), OpenStep("ProfilerStep#0", "user_annotation", 0), *step, CloseStep()]
    engine = Engine()
    host = new_host(engine, 0, [*program, Synchronize("cudaDeviceSynchronize", 2_500), StopRecording()])
    engine.run([host])
    truth = SimulatedRun(Settings(num_ranks=1), (), (RankRun(0, tuple(recorded_windows(host)), 0, 0.0),)).truth
    # The kernels run from 5.5 to 15.5 us and from 23.5 to 33.5 us, the first call that waits from 5 to 17.5 us.
    (rank,), (row,) = truth.ranks, truth.steps
    assert (rank["window_ns"], rank["busy_ns"], rank["idle_ns"]) == (28_000, 20_000, 8_000)
    assert (rank["idle_host_wait_ns"], rank["idle_kernel_wait_ns"]) == (4_000, 4_000)
    assert (row["duration_ns"], row["forward_ns"], row["sync_ns"], row["python_ns"]) == (22_500, 4_000, 12_500, 3_000)
    assert (row["num_kernels"], row["device_busy_ns"], row["device_idle_ns"]) == (2, 20_000, 8_000)
    assert truth.operators["aten::mm", ""]["self_ns"] == 1_000
    assert truth.operators["aten::mm", ""]["device_ns"] == 10_000


# -- the same again, and in files


def test_the_same_settings_give_the_same_bytes(tmp_path):
    settings = random_settings(3)
    assert written(simulate(settings), tmp_path / "a") == written(simulate(settings), tmp_path / "b")


def test_another_seed_gives_another_run():
    first, second = (simulate(Settings(seed=seed)) for seed in (0, 1))
    assert first.time_ns != second.time_ns


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_kinetoscope_reads_what_it_writes(seed, tmp_path):
    run = simulate(random_settings(seed))
    names = run.write(tmp_path)
    traces = {trace.name: trace for trace in kinetoscope.load(tmp_path, cache=False)}
    for name, (rank, window) in zip(names, ((r, w) for r in run.ranks for w in r.windows), strict=True):
        trace = traces[str(name)]
        assert (trace.rank, trace.world_size, trace.host) == (rank.rank, run.settings.num_ranks, rank.host)
        assert trace.has_clock
        assert not trace.repairs
        kinds = dict(trace.spans.group_by("category").len().collect().rows())
        assert kinds.get("cpu_op", 0) == sum(span.category == "cpu_op" for span in window.spans)
        assert kinds.get("kernel", 0) == sum(span.kernel.category == "kernel" for span in window.queued)
        assert trace.instants.filter(pl.col("name") == "[memory]").collect().height == len(window.memory)
        shown = trace.spans.filter(pl.col("category") == "kernel").select("ts", "dur").collect().rows()
        kernels = [span for span in window.queued if span.kernel.category == "kernel"]
        assert shown == [(rank.clock_ns(span.begin_ns), span.end_ns - span.begin_ns) for span in kernels]


def test_perfetto_finds_nothing_wrong_with_its_traces(tmp_path):
    settings = Settings(has_stacks=True, step_spans="both", layout="pipeline", evaluates_every=3)
    with load_in_perfetto(simulate(settings).write(tmp_path)[0]) as trace:
        assert trace.errors() == {}
        assert trace.query("select count(*) as n from slice where name glob '*gemm*'")[0]["n"] > 0


def test_clocks_of_ranks_differ_and_run_apart(tmp_path):
    run = simulate(Settings(num_ranks=4, offset_ns=5_000_000, drift_ppm=50))
    assert (run.ranks[0].offset_ns, run.ranks[0].drift_ppm) == (0, 0)
    assert all(rank.offset_ns and rank.drift_ppm for rank in run.ranks[1:])
    second = 1_000_000_000
    for rank in run.ranks:
        apart = rank.clock_ns(second) - rank.clock_ns(0) - second
        assert apart == round(1_000 * rank.drift_ppm)


# -- what holds in every run


def test_every_recorded_launch_has_its_kernels_and_comes_before_them(runs):
    launches = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaGraphLaunch", "cudaMemcpyAsync")
    for window in (window for run in runs for window in windows_of(run)):
        launched = defaultdict(list)
        for span in device_spans(window):
            launched[id(span.launch)].append(span)
            assert span.begin_ns > span.launch.begin_ns
        for call in (span for span in window.spans if span.name in launches):
            assert len(launched[id(call)]) == 1 or call.name == "cudaGraphLaunch"


def test_spans_of_one_stream_come_one_after_the_other(runs):
    for window in (window for run in runs for window in windows_of(run)):
        streams = defaultdict(list)
        for span in window.queued:
            streams[span.stream.track].append(span)
        for spans in streams.values():
            assert all(before.end_ns <= after.begin_ns for before, after in itertools.pairwise(spans))


def test_spans_of_one_thread_lie_in_one_another_or_apart(runs):
    for window in (window for run in runs for window in windows_of(run)):
        for span in window.spans:
            assert span.begin_ns <= span.end_ns
            if span.parent is not None and span.parent.end_ns >= 0:
                assert span.parent.begin_ns <= span.begin_ns
                assert span.end_ns <= span.parent.end_ns


def test_a_collective_ends_on_all_ranks_together_and_after_the_last_has_begun(runs):
    for row in (row for run in runs for row in run.truth.collectives):
        assert len(set(row["ends_ns"].values())) == 1
        assert max(row["starts_ns"].values()) < min(row["ends_ns"].values())


def test_jitter_is_how_far_the_ends_of_a_collective_lie_apart():
    rows = simulate(Settings(num_ranks=4, jitter_ns=5_000)).truth.collectives
    spreads = [max(row["ends_ns"].values()) - min(row["ends_ns"].values()) for row in rows]
    assert 0 < max(spreads) <= 5_000


def test_the_time_of_a_device_adds_up(runs):
    for row in (row for run in runs if run.settings.has_device for row in run.truth.ranks):
        assert row["busy_ns"] == row["compute_ns"] + row["exposed_communication_ns"] + row["exposed_copy_ns"]
        assert row["idle_ns"] == row["window_ns"] - row["busy_ns"]
        assert row["idle_ns"] == row["idle_host_wait_ns"] + row["idle_kernel_wait_ns"] + row["idle_other_ns"]


def test_steps_and_what_lies_between_them_add_up_to_the_recorded_time(runs):
    for run in runs:
        has_fetch_outside = run.settings.step_spans != "ProfilerStep"
        for rank in run.ranks:
            rows = [row for row in run.truth.steps if row["rank"] == rank.rank]
            parts = [row["duration_ns"] + (row["between_ns"] or 0) + (row["evaluation_ns"] or 0) for row in rows]
            if has_fetch_outside:
                parts += [row["data_wait_ns"] for row in rows]
            first = [window.steps[0].step for window in rank.windows]
            before = sum(row["data_wait_ns"] for row in rows if has_fetch_outside and row["step"] in first)
            assert sum(parts) - before == sum(run.truth.cycles_ns[rank.rank])


def test_steps_hold_all_that_the_device_was_given_in_them(runs):
    for run in (run for run in runs if run.settings.has_device):
        kernels = [span for window in windows_of(run) for span in window.queued if span.kernel.category == "kernel"]
        given = [span for span in kernels if span.step is not None]
        assert sum(row["num_kernels"] for row in run.truth.steps) == len(given)


# -- what can be wrong with a run, or with its traces


@pytest.mark.parametrize("kind", [kind for kind in FINDINGS if kind != "leak"])
def test_a_run_without_its_fault_is_faster(kind):
    run = simulate(replace(planted_settings(0, kind), num_steps=5))
    better = run.without(0)
    assert run.saving_ns_per_step(better) > 0.1 * run.settings.step_ns
    begins = [[rank.windows[0].begin_ns for rank in each.ranks] for each in (run, better)]
    assert begins[0] == begins[1], "until the recording begins, both are the same"


@pytest.mark.parametrize(
    "settings", [Settings(layout="sharded"), Settings(layout="pipeline"), Settings(has_device=False, num_workers=0)]
)
def test_a_run_in_which_something_takes_no_time_is_not_slower(settings):
    run = simulate(replace(settings, num_steps=4, reads_loss="each step"))
    for what in ("data", "sync", "launch", "transfer", "copy", "python"):
        assert run.saving_ns_per_step(run.with_ideal(what)) >= 0


@pytest.mark.parametrize(("times", "share"), [(2, 1 / 2), (0.5, -1)])
def test_a_kernel_that_is_faster_or_slower_saves_or_costs_what_it_took(times, share):
    run = simulate(Settings(num_ranks=1, noise=0, num_steps=8))
    name = next(name for name in run.truth.kernels if "gemm" in name)
    kernels = [span for span in windows_of(run)[0].queued if span.kernel.name == name and span.step is not None]
    saved_ns = run.saving_ns_per_step(run.with_faster(name, times)) * run.settings.num_steps
    assert saved_ns == pytest.approx(share * sum(span.end_ns - span.begin_ns for span in kernels), rel=0.01)


@pytest.mark.parametrize("step_ns", [300_000, 3_000_000, 30_000_000])
def test_a_healthy_run_takes_about_as_long_as_asked_and_its_device_is_busy(step_ns):
    for seed in range(3):
        run = simulate(healthy_settings(seed, step_ns))
        assert run.time_ns / run.settings.num_steps == pytest.approx(step_ns, rel=0.3)
        for row in run.truth.ranks if run.settings.has_device else ():
            assert row["idle_ns"] < 0.12 * row["window_ns"]


def test_other_ranks_wait_for_a_straggler():
    for kind in ("late_host", "late_device", "slow_loader"):
        run = simulate(replace(planted_settings(1, kind, rank=2), num_steps=6))
        waiting_ns = [run.truth.waiting_ns_per_step(rank, exposed=True) for rank in range(4)]
        assert waiting_ns[2] > 10 * max(waiting_ns[:2] + waiting_ns[3:])
        (row,) = run.truth.stragglers
        assert (row["rank"], row["cause"]) == (2, run.settings.faults[0].cause)


def test_a_loader_that_is_slow_on_one_rank_makes_that_rank_late_and_nothing_else():
    fault = Fault(kind="slow_loader", ranks=(1,))
    assert (fault.finding, fault.cause) == ("straggler", "data")
    assert (replace(fault, ranks=()).finding, replace(fault, ranks=()).cause) == ("input_bound", None)


def test_unexplained_gaps_are_distinguished_from_launch_gaps():
    (row, *_) = simulate(replace(planted_settings(0, "idle_gaps"), num_steps=4)).truth.ranks
    assert row["idle_other_ns"] > 0.9 * row["idle_ns"] > 0.2 * row["window_ns"]


def test_a_blocking_copy_returns_after_it_has_ended_and_a_pinned_one_before():
    for kind, is_blocking in (("pageable_copies", True), ("gc", False)):
        window = windows_of(simulate(planted_settings(0, kind)))[0]
        copies = [span for span in window.queued if span.kernel.kind == "copy" and span.launch.window == 0]
        assert copies
        assert all((span.launch.end_ns > span.end_ns) == is_blocking for span in copies)


def test_work_in_flight_at_the_recording_start_has_no_launch(tmp_path):
    run = simulate(Settings(num_ranks=1))
    (path,) = run.write(tmp_path)
    events = json.loads(path.read_text())["traceEvents"]
    launched = {event["args"]["correlation"] for event in events if event.get("cat") == "cuda_runtime"}
    kernels = [event["args"]["correlation"] for event in events if event.get("cat") == "kernel"]
    missing = [number for number in kernels if number not in launched]
    assert 0 < len(missing) < len(kernels) / 4
    assert missing == kernels[: len(missing)]


def test_a_graph_has_many_kernels_and_one_launch():
    window = windows_of(simulate(Settings(has_cuda_graph=True)))[0]
    graphs = defaultdict(int)
    for span in window.queued:
        graphs[span.launch.correlation] += span.launch.name == "cudaGraphLaunch"
    assert max(graphs.values()) > 10


def test_rank_with_a_late_recording_start_misses_the_first_calls():
    settings = Settings(num_ranks=4, late_ranks=(3,), num_missed_calls=2, reads_loss="each step", layout="tensor")
    run = simulate(settings)
    steps = {row["rank"]: row["num_steps"] for row in run.truth.ranks}
    assert steps == {0: 10, 1: 10, 2: 10, 3: 9}
    assert any(row["num_ranks"] == 1 for row in run.truth.collectives)


def test_rank_with_a_lost_trace_counts_as_a_participant():
    run = simulate(Settings(num_ranks=3, missing_ranks=(1,)))
    assert [rank.rank for rank in run.ranks] == [0, 2]
    assert {row["num_ranks"] for row in run.truth.collectives} <= {1, 2}
    assert run.truth.ranks[0]["world_size"] == 3


def test_each_cycle_is_a_window_of_its_own():
    run = simulate(Settings(num_ranks=1, num_cycles=2, num_steps=4, num_warmup_steps=2))
    first, second = run.ranks[0].windows
    assert [[step.step for step in window.steps] for window in (first, second)] == [[2, 3, 4, 5], [8, 9, 10, 11]]
    (row,) = run.truth.ranks
    recorded_ns = sum(window.end_ns - window.begin_ns for window in (first, second))
    assert row["window_ns"] < recorded_ns < run.ranks[0].windows[1].end_ns - run.ranks[0].windows[0].begin_ns


def test_a_leak_is_what_is_left_of_each_step():
    fault = Fault(kind="leak", num_bytes=1_000_000, every=2)
    run = simulate(Settings(num_ranks=1, num_steps=8, num_warmup_steps=2, faults=(fault,)))
    by_step = {event.step: event.total_bytes for event in windows_of(run)[0].memory if event.step is not None}
    assert by_step[8] - by_step[2] == 3 * 1_000_000
    assert run.truth.memory[0]["growth_bytes_per_step"] == 500_000


def test_backward_on_the_cpu_is_on_the_thread_of_the_loop():
    runs = {has_device: simulate(Settings(has_device=has_device)) for has_device in (True, False)}
    threads = {
        has_device: {span.thread for span in windows_of(run)[0].spans if span.phase == "backward"}
        for has_device, run in runs.items()
    }
    assert threads == {True: {"autograd"}, False: {"loop"}}


@pytest.mark.parametrize("kind", get_args(FaultKind))
def test_a_drawn_fault_has_a_size(kind):
    fault = fault_of(random.Random(0), kind, 10_000_000, 2, (), 1)
    assert fault.cost_ns > 0 or fault.count > 1 or fault.num_bytes > 0


def test_a_kind_without_a_size_is_an_error():
    with pytest.raises(ValueError, match="new_fault has no size: add it to the costs or counts"):
        fault_of(random.Random(0), "new_fault", 10_000_000, 2, (), 1)


def test_settings_that_make_no_sense_say_so():
    with pytest.raises(ValueError, match="an even number of ranks, not 3"):
        Settings(num_ranks=3, layout="pipeline")
    with pytest.raises(ValueError, match="needs steps that are event/batch"):
        Settings(evaluates_every=2)
    with pytest.raises(ValueError, match="has the layout data"):
        Settings(has_device=False, layout="sharded")
