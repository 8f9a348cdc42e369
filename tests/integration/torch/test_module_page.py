"""Modules on the page of a real run: they add up to the step, and their calls to all operators."""

import pytest
import torch
from torch import nn

import kinetoscope
from support.page_data import page_of, read_column

NUM_STEPS = 3


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("module-page")
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = kinetoscope.cyclic_schedule(skip_first=0, wait=0, warmup=1, active=NUM_STEPS, repeat=1)
    with kinetoscope.profile(
        folder, schedule=schedule, modules=True, system=False, quiet=True, strict=True
    ) as profiler:
        for _ in profiler.batches(range(NUM_STEPS + 1)):
            optimizer.zero_grad()
            model(torch.randn(2, 4, 8)).square().mean().backward()
            optimizer.step()
    return page_of(*sorted((folder / "traces").glob("*rank0*")))


def test_modules_and_the_time_outside_add_up_to_the_step(page):
    outermost = [row for row in page.modules.rows if row.level == 0]
    durations = [row["duration_ns"] for row in page.report["steps"]]
    assert page.modules.side == "CPU"
    assert page.modules.total.time_ns == pytest.approx(sum(row.time_ns for row in outermost))
    assert page.modules.total.time_ns * len(durations) == pytest.approx(sum(durations))
    assert sum(row.share for row in outermost) == pytest.approx(1)


def test_calls_within_modules_and_outside_add_up_to_all_operators(page):
    calls = page.modules.calls
    (total,) = (total for total in page.call_totals if total.kind == "operators")
    assert sum(read_column(calls.self_ns)) == total.self_ns
    assert sum(read_column(calls.num_calls)) == total.num_calls


def test_operators_of_the_backward_pass_belong_to_the_module_of_their_forward_operator(page):
    calls, rows = page.modules.calls, page.modules.rows
    names = [calls.texts[name] for name in read_column(calls.names)]
    of_backward = {
        rows[row].class_name
        for row, name in zip(read_column(calls.modules), names, strict=True)
        if name == "NativeLayerNormBackward0"
    }
    assert of_backward == {"LayerNorm"}
