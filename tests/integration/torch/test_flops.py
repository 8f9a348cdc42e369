"""The floating-point operations in reports on real recordings are those that torch's FlopCounterMode counts."""

import pytest
import torch
import torch.nn.functional as functional
from torch import nn
from torch.utils import flop_counter

import kinetoscope
import kinetoscope.torch
from kinetoscope.analysis.gpu.flop_formulas import estimate_work
from support.torch_versions import since_2_13

ATTENTION_ON_CPU = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: flop_counter.sdpa_flop_count(
        *shapes[:3]
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda *shapes, **_: (
        flop_counter.sdpa_backward_flop_count(*shapes[:4])
    ),
}
"""FlopCounterMode knows the attention of devices only; these are its own formulas."""


def counted_by_torch(work) -> dict[str, int]:
    with flop_counter.FlopCounterMode(display=False, custom_mapping=ATTENTION_ON_CPU) as counter:
        work()
    return {str(name).replace(".", "::"): flops for name, flops in counter.get_flop_counts()["Global"].items()}


def recorded(work, path, **options):
    options = {"record_shapes": True} | options
    with kinetoscope.torch.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options) as profiler:
        work()
    profiler.export_chrome_trace(str(path / "trace.json"))
    return kinetoscope.analyze(path / "trace.json", cache=False)


def counted_in(report) -> dict[str, float]:
    sums: dict[str, float] = {}
    for row in report.operators:
        if row.flops is not None:
            sums[row.name] = sums.get(row.name, 0) + row.flops
    return sums


def transformer():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.0)
    model, tokens = nn.Sequential(nn.Embedding(10, 16), layer, nn.Linear(16, 10)), torch.randint(10, (2, 7))
    return lambda: model(tokens).sum().backward()


def convolutions():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, (3, 1), padding="same", bias=False),
        nn.Conv2d(8, 4, 3, dilation=2),
        nn.Flatten(),
        nn.LazyLinear(5),
    )
    images = torch.randn(2, 3, 17, 15)
    model(images)
    return lambda: model(images).sum().backward()


def convolutions_in_groups():
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3, groups=2, padding=1), nn.Conv2d(8, 8, 5, groups=8), nn.Conv2d(8, 6, 1, groups=2)
    )
    images = torch.randn(2, 4, 9, 9, requires_grad=True)
    return lambda: model(images).sum().backward()


def transposed_convolutions():
    model = nn.Sequential(
        nn.ConvTranspose2d(3, 8, 3, stride=2, output_padding=1),
        nn.ConvTranspose2d(8, 4, 3, groups=2, dilation=2, padding=1),
    )
    images = torch.randn(2, 3, 5, 6, requires_grad=True)
    return lambda: model(images).sum().backward()


def convolutions_of_other_dimensions():
    line, space = nn.Conv1d(4, 6, 3, stride=2), nn.Conv3d(2, 3, (1, 2, 3), groups=1)
    sounds, films = torch.randn(3, 4, 20), torch.randn(1, 2, 4, 5, 6)

    def work() -> None:
        line(sounds).sum().backward()
        line(sounds[0]).sum().backward()
        space(films).sum().backward()
        functional.conv_transpose1d(sounds, torch.ones(4, 2, 3))

    return work


def products():
    left, right = torch.randn(3, 4, 5, requires_grad=True), torch.randn(3, 5, 6)

    def work() -> None:
        torch.bmm(left, right).sum().backward()
        torch.baddbmm(torch.zeros(3, 4, 6), left, right).sum().backward()
        torch.einsum("bij,bjk->bk", left, right).sum().backward()
        torch.addmm(torch.zeros(6), left[0], right[0]).sum().backward()
        with torch.no_grad():
            torch.mm(left[0], right[0], out=torch.empty(4, 6))
        (left @ right[0] @ torch.ones(6)).sum().backward()

    return work


def attention():
    queries, keys = torch.randn(2, 4, 6, 8, requires_grad=True), torch.randn(2, 4, 5, 8, requires_grad=True)
    mask = torch.zeros(6, 5, requires_grad=True)

    def work() -> None:
        attend = functional.scaled_dot_product_attention
        attend(queries, keys, keys).sum().backward()
        attend(queries, queries, queries, is_causal=True).sum().backward()
        attend(queries, keys, keys, attn_mask=mask).sum().backward()
        attend(queries, keys, keys, dropout_p=0.5).sum().backward()

    return work


@pytest.mark.parametrize(
    "model",
    [
        transformer,
        convolutions,
        convolutions_in_groups,
        transposed_convolutions,
        convolutions_of_other_dimensions,
        products,
        attention,
    ],
)
def test_each_operator_has_the_operations_that_torch_counts(model, tmp_path):
    work = model()
    assert counted_in(recorded(work, tmp_path)) == counted_by_torch(work)


def test_a_step_has_the_operations_of_all_its_operators_and_their_rate(tmp_path):
    work = transformer()
    with kinetoscope.torch.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=kinetoscope.torch.schedule(wait=0, warmup=1, active=3),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(tmp_path / "trace.json")),
        record_shapes=True,
    ) as profiler:
        for _ in range(4):
            work()
            profiler.step()
    report = kinetoscope.analyze(tmp_path / "trace.json", cache=False)
    flops = sum(counted_by_torch(work).values())
    assert [row.flops for row in report.steps] == [flops] * 3
    assert [row.flops_per_s for row in report.steps] == [flops / row.duration_ns * 1e9 for row in report.steps]
    assert {row.mfu for row in report.steps} == {None}, "the peak of a CPU is unknown"
    assert report.run["flops_per_step"] == flops
    assert report.run["flops_per_s"] == pytest.approx(flops / report.run["step_ns"] * 1e9)


def test_without_shapes_nothing_is_known_and_a_note_says_what_records_them(tmp_path):
    report = recorded(products(), tmp_path, record_shapes=False)
    assert counted_in(report) == {}
    assert report.run["flops_per_step"] is report.run["flops_per_s"] is report.run["mfu"] is None
    assert any("record_shapes=True" in note for note in report.run["notes"])


def test_operators_without_products_need_no_shapes(tmp_path):
    report = recorded(lambda: torch.ones(3) + 1, tmp_path, record_shapes=False)
    assert not any("record_shapes" in note for note in report.run["notes"])


def shapes_of(*tensors) -> list[list[int]]:
    return [list(tensor.shape) for tensor in tensors]


def counted_on_meta(name, *tensors, **more) -> int:
    """Return torch's count for an operator that no CPU has."""
    with flop_counter.FlopCounterMode(display=False) as counter:
        getattr(torch.ops.aten, name)(*tensors, **more)
    return counter.get_total_flops()


@pytest.mark.parametrize("heads_of_keys", [8, pytest.param(2, marks=since_2_13)])
def test_attention_on_devices_has_the_operations_that_torch_counts(heads_of_keys):
    queries = torch.empty(2, 8, 6, 16, device="meta", dtype=torch.half)
    keys = torch.empty(2, heads_of_keys, 5, 16, device="meta", dtype=torch.half)
    known = flop_counter.sdpa_flop_count(queries.shape, keys.shape, keys.shape)
    known_backward = flop_counter.sdpa_backward_flop_count(queries.shape, queries.shape, keys.shape, keys.shape)
    for kind in ("flash", "efficient", "cudnn"):
        name = f"aten::_scaled_dot_product_{kind}_attention"
        assert estimate_work(name, shapes_of(queries, keys, keys)).flops == known
        assert estimate_work(f"{name}_backward", shapes_of(queries, queries, keys, keys)).flops == known_backward
    assert counted_on_meta("_scaled_dot_product_flash_attention", queries, queries, queries) == (
        estimate_work("aten::_scaled_dot_product_flash_attention", shapes_of(queries, queries, queries)).flops
    )


def test_products_of_8_bits_have_the_operations_that_torch_counts():
    left = torch.empty(32, 64, device="meta", dtype=torch.float8_e4m3fn)
    right = torch.empty(16, 64, device="meta", dtype=torch.float8_e4m3fn).t()
    scale = torch.empty((), device="meta")
    known = counted_on_meta("_scaled_mm", left, right, scale, scale, out_dtype=torch.bfloat16)
    assert estimate_work("aten::_scaled_mm", shapes_of(left, right)).flops == known
