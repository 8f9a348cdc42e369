"""Memory: its peak, its growth from step to step, and its references."""

import json
from functools import partial
from itertools import count

import pytest

import kinetoscope
from trainsim import Fault, Settings, simulate
from trainsim.analyses import analyze_cached, measured

STEP_US = 1000


class Recording:
    """Writes a trace step by step. Memory has a name, by which it is freed; each call is an operator of its own."""

    def __init__(self, device=None):
        self.device, self.total, self.time_us, self.sizes = device, 0, 0, {}
        self.addresses, self.events = count(4096, 4096), []

    def operator(self, name, frees=(), **takes):
        begin_us = self.time_us
        for what, size in takes.items():
            self.sizes[what] = (next(self.addresses), size)
            self._memory(*self.sizes[what])
        for what in frees:
            address, size = self.sizes.pop(what)
            self._memory(address, -size)
        self.time_us += 1
        self._span(name, "cpu_op", begin_us)

    def step(self, number, *calls):
        begin_us = self.time_us = number * STEP_US
        for call in calls:
            call()
        self.time_us = begin_us + STEP_US - 10
        self._span(f"ProfilerStep#{number}", "user_annotation", begin_us)

    def frame(self, name, call):
        begin_us = self.time_us
        call()
        self.time_us += 1
        self._span(name, "python_function", begin_us)

    def free_unseen(self, what):
        self.total -= self.sizes.pop(what)[1]

    def update(self, **takes):
        begin_us = self.time_us
        self.operator("aten::zeros_like", **takes)
        self._span("Optimizer.step#Adam.step", "user_annotation", begin_us)

    def note(self, **args):
        """Return a source's note on a holder, or on its scan."""
        event = {"ph": "i", "s": "t", "cat": "memory_holder", "name": "memory holder", "args": args}
        self._add(event, self.time_us)

    def _memory(self, address, size):
        self.total += size
        self.time_us += 1
        place = {"Device Type": 0, "Device Id": -1} if self.device is None else {"Device Type": 1, "Device Id": 0}
        args = place | {"Total Allocated": self.total, "Total Reserved": 0, "Bytes": size, "Addr": address}
        self._add({"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "args": args}, self.time_us)

    def _span(self, name, category, begin_us):
        self._add({"ph": "X", "name": name, "cat": category, "dur": self.time_us + 0.5 - begin_us}, begin_us)

    def _add(self, event, time_us):
        self.events.append(event | {"pid": 0, "tid": 1, "ts": time_us})

    def row(self, folder):
        self.write(folder / "rank0.json")
        return row_of(folder)

    def write(self, path):
        base_ns = 1_790_000_000_000_000_000
        path.write_text(json.dumps({"baseTimeNanoseconds": base_ns, "traceEvents": self.events}))


def row_of(source):
    (row,) = kinetoscope.analyze(source, cache=False).memory
    return row


def keep(recording, **takes):
    """Return a call that keeps memory; without arguments, one that gives all of it back."""
    return lambda: recording.operator("aten::clone", **(takes or {"again": 10, "frees": ["again"]}))


@pytest.mark.parametrize(
    ("every", "num_steps", "has_device"), [(1, 8, True), (2, 9, False), (3, 8, True), (3, 10, False), (4, 12, True)]
)
def test_leak_in_every_nth_step_is_reported_per_step_with_operator_and_line(every, num_steps, has_device):
    leak = Fault(kind="leak", every=every, num_bytes=999_000)
    settings = Settings(num_ranks=1, num_steps=num_steps, has_device=has_device, has_stacks=True, faults=(leak,))
    run, report = measured(settings)
    (row,), (truth,) = report.memory, run.truth.memory
    assert row.growth_bytes_per_step == truth["growth_bytes_per_step"] == 999_000 / every
    assert [(holder.operator, holder.line) for holder in row.holders] == [("aten::clone", "train.py:36")]
    assert {step % every for step in row.holders[0].steps} == {0}


def test_peak_and_its_step_are_reported_per_rank_also_for_a_merged_trace(tmp_path):
    leak = Fault(kind="leak", ranks=(1,), num_bytes=2_000_000)
    run = simulate(Settings(num_ranks=2, num_steps=8, faults=(leak,)))
    kinetoscope.merge_traces(tmp_path / "merged.json", *run.write(tmp_path / "traces"))
    truth = [(row["rank"], row["device"], row["peak_bytes"], row["peak_step"]) for row in run.truth.memory]
    for source in (tmp_path / "traces", tmp_path / "merged.json"):
        report = kinetoscope.analyze(source, cache=False)
        assert [(row.rank, row.device, row.peak_bytes, row.peak_step) for row in report.memory] == truth
        assert [row.growth_bytes_per_step for row in report.memory] == [0, 2_000_000]
        peak_memory_by_step = {(row.rank, row.step): row.peak_memory_bytes for row in report.steps}
        assert peak_memory_by_step == {(row["rank"], row["step"]): row["peak_memory_bytes"] for row in run.truth.steps}


def windows_of_one_process(folder, has_device, state=0):
    """Three windows of a loop that holds 1,000 bytes a step, and frees those of the last step after the window: on a
    device torch's total counts that, on the host it never does."""
    recording = Recording(device=0 if has_device else None)
    for window in range(3):
        first = 10 * window
        for step in range(first, first + 4):
            frees = [f"batch{step - 1}"] if step > first else []
            call = partial(recording.operator, "aten::clone", frees=frees, **{f"batch{step}": 1000})
            recording.step(step, *([partial(recording.update, state=state)] if step == 0 and state else []), call)
        if has_device:
            recording.free_unseen(f"batch{first + 3}")
        recording.write(folder / f"rank0-{window}.json")
        recording.events.clear()


@pytest.mark.parametrize("has_device", [True, False])
def test_memory_freed_between_windows_is_not_in_a_later_peak(has_device, tmp_path):
    windows_of_one_process(tmp_path, has_device)
    report = kinetoscope.analyze(tmp_path, cache=False)
    assert [row.peak_bytes for row in report.memory] == [2000]
    assert [row.peak_memory_bytes for row in report.steps] == 3 * [1000, 2000, 2000, 2000]


def test_memory_freed_in_a_later_window_existed_before_it(tmp_path):
    recording = Recording()
    recording.step(0, keep(recording, state=5000, other=700))
    recording.write(tmp_path / "rank0-0.json")
    recording.events.clear()
    recording.step(1, keep(recording, more=100), keep(recording, frees=["state"], last=10))
    recording.write(tmp_path / "rank0-1.json")
    assert [row.peak_memory_bytes for row in kinetoscope.analyze(tmp_path, cache=False).steps] == [5700, 5110]


def test_fewer_than_eight_steps_report_no_growth():
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=7, faults=(Fault(kind="leak", num_bytes=1_000_000),)))
    assert [(row.growth_bytes_per_step, row.holders) for row in report.memory] == [(None, ())]


@pytest.mark.parametrize(("num_bytes", "size"), [(999_000, "975.6 KiB"), (2**31, "2.0 GiB")])
def test_finding_shows_growth_in_a_fitting_unit(num_bytes, size):
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=8, faults=(Fault(kind="leak", num_bytes=num_bytes),)))
    (found,) = report.findings
    assert found.title.startswith(f"Memory leak: +{size}/step")


def test_memory_without_addresses_reports_no_growth(tmp_path):
    recording = Recording()
    for step in range(10):
        recording.step(step, keep(recording, **{f"kept{step}": 1000}))
    for event in recording.events:
        event.get("args", {}).pop("Addr", None)
    row = recording.row(tmp_path)
    assert (row.peak_bytes, row.growth_bytes_per_step) == (10_000, None)


def test_steps_without_allocations_are_steps(tmp_path):
    recording = Recording()
    for step in range(12):
        recording.step(
            step, lambda step=step: recording.operator("aten::add_", **{} if step % 3 else {f"k{step}": 900})
        )
    assert recording.row(tmp_path).growth_bytes_per_step == 300


def test_two_short_windows_are_not_a_long_one(tmp_path):
    recording = Recording()
    for step in (*range(5), *range(9, 14)):
        recording.step(step, keep(recording, **{f"batch{step}": 1000}))
        recording.free_unseen(f"batch{step}")
    assert recording.row(tmp_path).growth_bytes_per_step is None


@pytest.mark.parametrize("last_of_first", [3, 9])
def test_the_growth_is_that_of_the_last_window_that_was_long_enough(last_of_first, tmp_path):
    for name, steps in (("rank0-a.json", range(last_of_first)), ("rank0-b.json", range(20, 32 - last_of_first))):
        recording = Recording()
        for step in steps:
            recording.step(step, keep(recording, **{f"batch{step}": 1000}))
        recording.write(tmp_path / name)
    assert row_of(tmp_path).growth_bytes_per_step == 1000


def test_growth_counts_from_after_the_first_optimizer_step(tmp_path):
    recording = Recording()
    for step in range(9):
        recording.step(step, keep(recording))
    assert recording.row(tmp_path).growth_bytes_per_step == 0
    recording.step(9, lambda: recording.update(state=1_000_000))
    for step in range(10, 14):
        recording.step(step, keep(recording))
    assert recording.row(tmp_path).growth_bytes_per_step is None


def test_state_of_the_first_optimizer_step_is_no_growth(tmp_path):
    recording = Recording()
    for step in range(10):
        recording.step(step, lambda first=step == 0: recording.update(**({"state": 10**6} if first else {"other": 0})))
    assert recording.row(tmp_path).growth_bytes_per_step == 0


def test_caches_that_fill_in_the_first_steps_are_no_growth(tmp_path):
    recording = Recording()
    for step in range(10):
        recording.step(step, keep(recording, **({f"kept{step}": 1000} if step < 6 else {})))
    assert recording.row(tmp_path).growth_bytes_per_step == 0


def test_memory_kept_only_in_the_last_steps_is_no_growth(tmp_path):
    recording = Recording()
    for step in range(10):
        recording.step(step, keep(recording, **({f"kept{step}": 1000} if step > 4 else {})))
    assert recording.row(tmp_path).growth_bytes_per_step == 0


def test_two_caches_of_different_sizes_are_no_growth(tmp_path):
    recording = Recording()
    for step in range(10):
        recording.step(step, keep(recording, **({f"kept{step}": 1000 * (step - 2)} if step in (3, 7) else {})))
    assert recording.row(tmp_path).growth_bytes_per_step == 0


def test_the_last_batches_kept_for_a_while_are_no_growth(tmp_path):
    recording = Recording()
    for step in range(11):
        recording.step(step, keep(recording, frees=[f"loss{step - 6}"] if step > 5 else [], **{f"loss{step}": 1000}))
    assert recording.row(tmp_path).growth_bytes_per_step == 0


@pytest.mark.parametrize("sizes", [(20, 90, 30, 95, 40, 99, 50, 98, 60, 97), (50, 30, 80, 20, 90, 40, 95, 60, 99, 97)])
def test_batches_of_different_sizes_are_no_growth(sizes, tmp_path):
    recording = Recording()
    for step, size in enumerate(sizes):
        frees = [f"batch{step - 1}"] if step else []
        recording.step(step, keep(recording, frees=frees, **{f"batch{step}": size * 1000}))
    assert recording.row(tmp_path).growth_bytes_per_step == 0


@pytest.mark.parametrize(
    "inner",
    [
        "torch/nn/functional.py(1760): relu",
        "<built-in method clone of Tensor object at 0x7f7820f34fd0>",
        "nn.Module: ReLU_0",
        "copy.py(128): deepcopy",
        "/usr/lib/python3.11/contextlib.py(78): inner",
        "/home/me/.venv/lib/python3.11/site-packages/einops/einops.py(5): rearrange",
    ],
)
def test_a_holders_line_is_that_of_the_users_function_around_those_of_libraries(inner, tmp_path):
    recording = Recording()
    for step in range(9):
        inside = partial(recording.frame, inner, keep(recording, **{f"kept{step}": 1000}))
        recording.step(step, partial(recording.frame, "torch-train.py(5): train", inside))
    assert [holder.line for holder in recording.row(tmp_path).holders] == ["torch-train.py:5"]


def test_an_operator_that_only_allocates_is_named_if_no_other_called_it(tmp_path):
    recording = Recording()
    for step in range(9):
        recording.step(step, lambda step=step: recording.operator("aten::empty", **{f"kept{step}": 1000}))
    assert [holder.operator for holder in recording.row(tmp_path).holders] == ["aten::empty"]


def test_recreated_tensor_with_more_elements_grows(tmp_path):
    recording = Recording()
    for step in range(10):
        frees = [f"all{step - 1}"] if step else []
        recording.step(
            step,
            lambda step=step, frees=frees: recording.operator(
                "aten::cat", frees=frees, **{f"all{step}": 1000 * (step + 1)}
            ),
        )
    row = recording.row(tmp_path)
    assert row.growth_bytes_per_step == 1000
    assert [(holder.operator, holder.line, holder.bytes_per_step) for holder in row.holders] == [
        ("aten::cat", None, 1000)
    ]


def test_memory_of_a_device_for_which_as_much_is_freed_that_is_older_does_not_grow(tmp_path):
    recording = Recording(device=0)
    for step in range(20):
        recording.step(step, lambda step=step: recording.operator("aten::clone", **{f"kept{step}": 1000}))
    recording.events.clear()
    for step in range(20, 30):
        recording.step(
            step,
            lambda step=step: recording.operator("aten::clone", frees=[f"kept{step - 20}"], **{f"kept{step}": 1000}),
        )
    row = recording.row(tmp_path)
    assert (row.device, row.growth_bytes_per_step) == (0, 0)


def test_largest_growth_comes_first_and_objects_without_growth_are_not_named(tmp_path):
    recording = Recording()
    for step in range(9):
        recording.step(
            step,
            lambda step=step: recording.operator("aten::relu", **{f"small{step}": 10}),
            lambda step=step: recording.operator("aten::mm", **{f"large{step}": 90}),
            lambda: recording.operator("aten::add", other=7, frees=["other"]),
        )
    row = recording.row(tmp_path)
    assert row.growth_bytes_per_step == 100
    assert [(holder.operator, holder.bytes_per_step) for holder in row.holders] == [
        ("aten::mm", 90),
        ("aten::relu", 10),
    ]


def test_a_report_with_memory_can_be_written_as_json():
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=8, faults=(Fault(kind="leak", num_bytes=1_000_000),)))
    row = json.loads(report.to_json())["memory"][0]
    assert row["growth_bytes_per_step"] == 1_000_000
    assert row["by_category"] == {"before_recording": 419_000_000, "forward": 7_000_000, "backward": 45_000_000}
    assert row["holders"][0] | {"steps": None} == {
        "operator": "aten::clone",
        "line": None,
        "category": "forward",
        "steps": None,
        "bytes_per_step": 1_000_000,
    }


# -- what holds it


LOSSES = {"holder": "losses", "kind": "list", "location": "variable of train", "steps": 10, "tensors": 10}
SEEN_ALL = {"steps": 10, "holders": 1, "complete": 1}


def growing(folder, *notes, step_bytes=1_000_000, frame=None):
    """Return the finding on a training run that leaks memory in each of ten steps, with notes of a source."""
    recording = Recording()
    for step in range(10):
        call = keep(recording, **{f"kept{step}": step_bytes})
        recording.step(step, partial(recording.frame, frame, call) if frame else call)
    for note in notes:
        recording.note(**note)
    recording.write(folder / "rank0.json")
    (found,) = [one for one in kinetoscope.analyze(folder, cache=False).findings if one.kind == "memory_growth"]
    return found


def test_reference_to_growing_memory_comes_before_its_allocator(tmp_path):
    note = LOSSES | {"graphs": 10, "bytes": 10_000_000, "line": "train.py:12"}
    found = growing(tmp_path, note, SEEN_ALL, frame="train.py(36): remember")
    assert found.title.endswith(", retained by losses")
    assert found.where.lines == ("train.py:12", "train.py:36")
    assert "losses (list, variable of train) gained 10 tensors in 10 steps, 10 of them with their " in found.advice


def test_a_sum_with_its_graphs_is_named_though_their_size_is_not_known(tmp_path):
    note = LOSSES | {"holder": "total", "kind": "tensor", "graphs": 10}
    found = growing(tmp_path, note, SEEN_ALL)
    assert "total (tensor, variable of train) retains the autograd graphs of all 10 steps." in found.advice


def test_object_that_references_far_less_than_the_growth_is_not_named(tmp_path):
    found = growing(tmp_path, LOSSES | {"graphs": 0, "bytes": 40}, SEEN_ALL)
    assert "losses" not in found.title
    assert "No object within reach of the loop's functions retains it" in found.advice


def test_object_on_another_device_is_no_reference(tmp_path):
    found = growing(tmp_path, LOSSES | {"graphs": 10, "bytes": 10_000_000, "device": 1}, SEEN_ALL)
    assert "losses" not in found.title


CANNOT_BE = 10**400


@pytest.mark.parametrize(
    "note",
    [
        SEEN_ALL | {"complete": 0},
        {},
        {"holder": "losses"},
        LOSSES | {"graphs": "10"},
        LOSSES | {"graphs": 0, "holder": 7},
        LOSSES | {"graphs": 0, "steps": CANNOT_BE},
        LOSSES | {"graphs": 0, "bytes": CANNOT_BE},
    ],
)
def test_a_look_that_did_not_see_all_and_notes_of_somebody_else_say_nothing(tmp_path, note):
    found = growing(tmp_path, note)
    assert found.advice.startswith("Keep numbers, not tensors")
