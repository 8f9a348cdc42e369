"""Slowdown of a small training loop in torch by 20 spans per step.

Every candidate runs the same source; only the expressions after ``with`` differ. A span costs several times what it
costs in a tight loop, because torch's work uses the caches. If a profiler's spans need another profiler to be on, they
are compared with the loop under that profiler, so that only the spans count.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from benchmarks.interleaved import Candidate, Timings, make_statement, measure
from benchmarks.recording.profilers import recorder_name
from benchmarks.recording.spans import SpanVariant, make_marker_variants, make_peer_variants, torch_profiler
from benchmarks.suite import Measure, SuiteResult
from benchmarks.torch_suite import on_one_thread

_NUM_LAYERS = 12
_WIDTH, _BATCH_SIZE = 64, 32
_BASE = "no spans"
_BASE_AGAIN = "no spans, once more (the noise)"
_UNDER_TORCH = "no spans, under torch.profiler"
_WORK: Mapping[str, str] = {
    "data": "hidden = source.clone()",
    "zero_grad": "optimizer.zero_grad()",
    **{f"layer {n}": f"hidden = relu(layers[{n}](hidden))" for n in range(_NUM_LAYERS)},
    "loss": "loss = mse_loss(hidden, target)",
    "backward": "loss.backward()",
    "optimizer": "optimizer.step()",
    "metrics": "total = loss.item()",
}
_NAMES = ["batch", "forward", *_WORK]


def run(*, quick: bool) -> SuiteResult:
    """Measure the loop without spans and with each kind of span, in one interleaved run."""
    return on_one_thread("training_loop", _TITLE, lambda: _measure(quick))


_TITLE = f"a small MLP, {len(_NAMES)} spans a step: slow-down"


def _measure(quick: bool) -> SuiteResult:
    peers, notes = make_peer_variants()
    ways = [*make_marker_variants(), *(peer for peer in peers if peer.tracer in (None, "torch"))]
    bases = [
        _make_loop_without_spans(_BASE),
        _make_loop_without_spans(_BASE_AGAIN),
        _make_loop_without_spans(_UNDER_TORCH, torch_profiler),
    ]
    candidates = [*bases, *(_make_loop_with_spans(variant) for variant in ways)]
    timings = measure(candidates, rounds=10 if quick else 150, round_ms=10 if quick else 20, collect_garbage=True)
    return SuiteResult(
        suite="training_loop",
        title=f"{_TITLE} (a step: {timings.median_ns(_BASE) / 1e3:.0f} us)",
        measures=list(_compare_slowdowns(candidates, timings)),
        recorder=recorder_name(),
        notes=notes,
        times_ns=timings.summary(),
    )


def _compare_slowdowns(candidates: list[Candidate], timings: Timings) -> Iterator[Measure]:
    for candidate in candidates[1:]:
        per_span_ns = timings.median_cost_ns(candidate) / len(_NAMES)
        detail = f"{per_span_ns:.0f} ns a span" if candidate.name not in (_BASE_AGAIN, _UNDER_TORCH) else ""
        yield Measure(candidate.name, 100 * timings.slow_down(candidate.name, candidate.over), "%", detail)


def _make_loop_without_spans(name: str, around: Callable[[], AbstractContextManager[None]] = nullcontext) -> Candidate:
    @contextmanager
    def variables() -> Iterator[Mapping[str, Any]]:
        with around():
            yield _make_model()

    return make_statement(name, _format_step(lambda name: "if True:"), variables, over=_BASE)


def _make_loop_with_spans(variant: SpanVariant) -> Candidate:
    @contextmanager
    def variables() -> Iterator[Mapping[str, Any]]:
        with variant.around(_NAMES) as spans:
            yield {**_make_model(), **spans}

    step = _format_step(lambda name: f"with {variant.span(_NAMES.index(name), name)}:")
    return make_statement(variant.name, step, variables, over=_UNDER_TORCH if variant.tracer == "torch" else _BASE)


def _format_step(head: Callable[[str], str]) -> str:
    """Return the source of one training step; ``head`` returns the line that opens a span's block."""
    blocks = [_format_block(head(name), [line]) for name, line in _WORK.items()]
    first = list(_WORK).index("layer 0")
    last = first + _NUM_LAYERS
    forward = _format_block(head("forward"), blocks[first:last])
    return _format_block(head("batch"), [*blocks[:first], forward, *blocks[last:]])


def _format_block(head: str, body: list[str]) -> str:
    return "\n".join([head, *(textwrap.indent(part, "    ") for part in body)])


def _make_model() -> Mapping[str, Any]:
    """Return a fresh model, its data and the functions that a step calls."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(_NUM_LAYERS)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    return {
        "layers": layers,
        "optimizer": torch.optim.SGD(parameters, lr=0.01),
        "source": torch.randn(_BATCH_SIZE, _WIDTH),
        "target": torch.randn(_BATCH_SIZE, _WIDTH),
        "relu": torch.relu,
        "mse_loss": torch.nn.functional.mse_loss,
    }
