"""The model of a simulated training: forward and backward of its layers, in all the ways that ranks share the work."""

from trainsim.actions import Allocate, AwaitTasks, OnThread, RecordEvent, Release, Work
from trainsim.faults import write_faults_of_layer, write_items
from trainsim.groups import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    ALL_TO_ALL_OF_EXPERTS,
    RECEIVE,
    REDUCE_SCATTER,
    SEND,
    Group,
)
from trainsim.writer import AFTER_NS, BEFORE_NS, EVENT_NS, GLOO, Writer

_GRADIENT_BYTES = 9_000_000
_ROWS = 64
_BETWEEN_NS = 400
"""Time that autograd's own thread takes between two of its operators."""
_BACKWARD = "autograd::engine::evaluate_function: "
_SHARDED = ("sharded", "fsdp")
"""Weights are gathered layer by layer; in `fsdp`, backward waits for them, too."""


def write_model(writer: Writer, number: int = 0) -> None:
    """Write forward and backward of one step, or of one of the batches whose gradients a step adds up."""
    settings = writer.settings
    is_last = number == settings.num_accumulated - 1
    batch = f" of {number}" if settings.num_accumulated > 1 else ""
    if writer.settings.has_cuda_graph:
        _graph(writer)
    elif settings.layout == "pipeline":
        _pipeline(writer) if settings.pipeline == "GPipe" else _pipeline_1f1b(writer)
    else:
        with writer.frame("model.py(8): forward"), writer.marker("forward"), writer.module("Model", "Model"):
            _forward(writer, batch)
        with writer.frame("train.py(27): backward"), writer.marker("backward"):
            _backward(writer, batch, reduces=is_last and writer.is_reducing)


def write_evaluation(writer: Writer) -> None:
    """The forward pass of an evaluation, which is none of the training's: of the same products, without gradients."""
    for layer in range(writer.settings.layers):
        width = _width(layer)
        factors = ((_ROWS, width), (width, width))
        writer.python()
        writer.operator("aten::addmm", kernel=writer.product(_layer_ns(writer), *factors))


def write_zero_grad(writer: Writer) -> None:
    """The memory of gradients is given back."""
    if writer.settings.has_memory and not writer.settings.has_cuda_graph:
        for layer in range(writer.settings.layers):
            writer.add(Release(f"gradient {layer}"))


def compute_ns(writer: Writer) -> int:
    """Return the compute time of a step of one rank."""
    return writer.settings.step_ns * 17 // 20


def _layer_ns(writer: Writer) -> float:
    """Return the forward time of one layer; its backward takes twice that."""
    settings = writer.settings
    parts = settings.num_microbatches if settings.layout == "pipeline" else settings.num_accumulated
    return compute_ns(writer) / (3 * settings.layers * parts)


def _width(layer: int) -> int:
    return 256 * (layer + 1)


def _forward(writer: Writer, batch: str = "") -> None:
    layout, num_layers = writer.settings.layout, writer.settings.layers
    if layout in _SHARDED:
        writer.collective(ALL_GATHER, writer.world, 0, phase="forward")
    for layer in range(num_layers):
        if layout in _SHARDED:
            _wait_for_layer(writer, layer)
        with writer.module(f"Model.layers.{layer}", "Layer"), writer.in_layer(layer):
            write_faults_of_layer(writer)
            _forward_layer(writer, layer, batch)
        if writer.settings.expert_share:
            _experts(writer, layer, phase="forward")
            continue
        if layout in ("tensor", "experts"):
            collective = ALL_REDUCE if layout == "tensor" else ALL_TO_ALL
            writer.collective(collective, writer.groups[0], layer, phase="forward")
            writer.wait_for(writer.groups[0])
        if (fault := writer.fault("items")) and writer.settings.has_device:
            write_items(writer, fault.count * (layer + 1) // num_layers - fault.count * layer // num_layers)


def _experts(writer: Writer, layer: int, phase: str | None = None) -> None:
    """Send tokens to the ranks of their experts, compute there, and send the results back."""
    group, layer_ns = writer.groups[0], _layer_ns(writer) * writer.settings.expert_share
    is_backward = phase is None
    writer.collective(ALL_TO_ALL_OF_EXPERTS, group, layer, phase=phase)
    writer.wait_for(group)
    uneven_ns = writer.expert_ns(2 * layer + is_backward)
    kernel = writer.product((2 if is_backward else 1) * layer_ns)
    writer.operator(
        "aten::_grouped_mm", kernel=kernel._replace(duration_ns=kernel.duration_ns + uneven_ns), phase=phase
    )
    writer.collective(ALL_TO_ALL_OF_EXPERTS, group, layer, phase=phase)
    writer.wait_for(group)


def _wait_for_layer(writer: Writer, layer: int) -> None:
    """A sharded layer needs its weights, while those of the next one are on their way."""
    event = writer.event_of(writer.world)
    if layer + 1 < writer.settings.layers:
        writer.collective(ALL_GATHER, writer.world, layer + 1, phase="forward")
    writer.wait_for_event(event)


def _forward_layer(writer: Writer, layer: int, batch: str, phase: str = "forward") -> None:
    width, layer_ns = _width(layer), _layer_ns(writer)
    layer_ns *= 1 - writer.settings.expert_share
    bias, factors = (width,), ((_ROWS, width), (width, width))
    of = f"Model.layers.{layer} {phase if phase == 'forward' else 'recompute'}"
    product = writer.product(0.8 * layer_ns, *factors, module=of)
    relu = writer.elementwise("clamp_min_scalar", 0.2 * layer_ns, of)
    writer.python()
    keeps = f"layer {layer}{batch}"
    key = keeps if phase == "forward" else f"recomputed {keeps}"
    linear_args = _join(writer.shapes(*factors, bias), writer.sequence(f"addmm {key}"))
    addmm_args = _join(writer.shapes(bias, *factors), writer.sequence(f"addmm {key}"))
    with writer.span("aten::linear", args=linear_args, phase=phase):
        writer.add(Work(writer.vary(BEFORE_NS)))
        writer.operator("aten::addmm", kernel=product, args=addmm_args, keeps=keeps)
        writer.add(Work(AFTER_NS))
    writer.python()
    relu_args = _join(writer.shapes((_ROWS, width)), writer.sequence(f"relu {key}"))
    writer.operator("aten::relu", "aten::clamp_min", kernel=relu, phase=phase, args=relu_args)


def _backward(writer: Writer, batch: str = "", *, reduces: bool = True) -> None:
    """Autograd has a thread of its own where there is a device; the loop's thread waits for it."""
    if writer.settings.has_device:
        writer.add(OnThread("autograd"))
    for layer in reversed(range(writer.settings.layers)):
        if layer + 1 < writer.settings.layers:
            _between(writer)
        if writer.settings.expert_share:
            _experts(writer, layer)
        with writer.in_layer(layer):
            if writer.settings.has_recomputation:
                _recompute(writer, layer, batch)
            _backward_layer(writer, layer, batch, reduces=reduces)
    if reduces and (group := _gradient_group(writer)):
        if writer.settings.has_device:
            writer.wait_for(group)
        else:
            writer.add(*map(AwaitTasks, GLOO[: writer.settings.num_gloo_threads]))
    if writer.settings.has_device:
        writer.add(OnThread("loop"))


def _recompute(writer: Writer, layer: int, batch: str) -> None:
    """Call a layer again, within the function that checkpointing puts in its place."""
    if not writer.settings.has_modules:
        _forward_layer(writer, layer, batch, phase="backward")
        return
    with writer.span(_BACKWARD + "CheckpointFunctionBackward", phase="backward"):
        with writer.module(f"Model.layers.{layer}", "Layer"):
            _forward_layer(writer, layer, batch, phase="backward")


def _join(*args: str) -> str:
    return ", ".join(filter(None, args))


def _between(writer: Writer) -> None:
    if writer.settings.has_device:
        writer.add(Work(_BETWEEN_NS))


def _backward_layer(writer: Writer, layer: int, batch: str, *, reduces: bool) -> None:
    width, layer_ns = _width(layer), _layer_ns(writer)
    layer_ns *= 1 - writer.settings.expert_share
    if writer.settings.layout == "fsdp" and layer + 1 < writer.settings.layers:
        writer.wait_for_event(f"weights {layer}")
    keeps, of = f"layer {layer}{batch}", f"Model.layers.{layer} backward"
    relu = writer.elementwise("threshold_kernel_impl", 0.2 * layer_ns, of)
    args = writer.sequence(f"relu {keeps}", is_backward=True)
    writer.operator(_BACKWARD + "ReluBackward0", "ReluBackward0", kernel=relu, phase="backward", args=args)
    _between(writer)
    args = writer.sequence(f"addmm {keeps}", is_backward=True)
    with (
        writer.span(_BACKWARD + "AddmmBackward0", args=args, phase="backward"),
        writer.span("AddmmBackward0", args=args),
    ):
        if writer.settings.layout in _SHARDED and layer:
            writer.collective(ALL_GATHER, writer.world, layer - 1)
        if writer.settings.layout == "fsdp" and layer:
            writer.add(RecordEvent(f"weights {layer - 1}", writer.world.stream, EVENT_NS))
        for shapes in (((_ROWS, width), (width, width)), ((width, _ROWS), (_ROWS, width))):
            product = writer.product(0.9 * layer_ns, *shapes, module=of)
            writer.operator("aten::mm", kernel=product, args=writer.shapes(*shapes))
        if writer.settings.has_memory:
            writer.add(Release(f"layer {layer}{batch}"))
    _between(writer)
    with writer.span(_BACKWARD + "torch::autograd::AccumulateGrad", phase="backward"):
        with writer.span("torch::autograd::AccumulateGrad"):
            if writer.settings.has_memory and batch in ("", " of 0"):  # later micro-batches add to it
                writer.add(Allocate(f"gradient {layer}", _GRADIENT_BYTES))
            writer.add(Work(writer.vary(2_000)))
        if reduces:
            _reduce_gradients(writer, layer)


def _reduce_gradients(writer: Writer, layer: int) -> None:
    """Gradients go out in buckets of two layers; sharded ones layer by layer."""
    group = _gradient_group(writer)
    if group is None:
        return
    if writer.settings.layout in _SHARDED:
        writer.collective(REDUCE_SCATTER, group, layer)
    elif layer % 2 == 0:
        writer.collective(ALL_REDUCE, group, layer)


def _gradient_group(writer: Writer) -> Group | None:
    """Return the ranks that have the same weights."""
    layout = writer.settings.layout
    if writer.settings.num_ranks == 1 or layout == "pipeline":
        return None
    return (writer.groups[1] if len(writer.groups) > 1 else None) if layout == "tensor" else writer.world


def _graph(writer: Writer) -> None:
    """Forward and backward as one CUDA graph: many kernels with one launch."""
    layers, layer_ns = writer.settings.layers, _layer_ns(writer)
    kernels = []
    for _ in range(layers):
        kernels += [writer.product(0.9 * layer_ns) for _ in range(3)]
        kernels.append(writer.elementwise("clamp_min_scalar", 0.3 * layer_ns))
    writer.python()
    writer.launch("cudaGraphLaunch", *kernels)
    if writer.settings.has_eager_head:
        bias, factors = (_width(0),), ((_ROWS, _width(0)), (_width(0), _width(0)))
        writer.python()
        args = writer.shapes(bias, *factors)
        writer.operator("aten::addmm", kernel=writer.product(0.1 * layer_ns, *factors), phase="forward", args=args)
    if writer.is_reducing and (group := _gradient_group(writer)):
        writer.python()
        writer.collective(ALL_REDUCE, group, layers, phase="forward")
        writer.wait_for(group)
    if fault := writer.fault("items"):
        write_items(writer, fault.count)


def _pipeline(writer: Writer) -> None:
    """All micro-batches forward, then all backward, each stage waiting for its neighbour."""
    parts = range(writer.settings.num_microbatches)
    before = next((group for group in writer.groups if group.ranks[1] == writer.rank), None)
    after = next((group for group in writer.groups if group.ranks[0] == writer.rank), None)
    for part in parts:
        _receive(writer, before, part)
        _forward(writer, f" of {part}")
        _send(writer, after, part)
    for part in parts:
        _receive(writer, after, part)
        _backward(writer, f" of {part}")
        _send(writer, before, part)
    for group in (before, after):
        if group:
            writer.wait_for(group)


def _pipeline_1f1b(writer: Writer) -> None:
    """Warm up with as many forward passes as there are stages behind, then alternate one forward and one backward."""
    group, parts = writer.groups[0], writer.settings.num_microbatches
    stage, last = group.ranks.index(writer.rank), len(group.ranks) - 1
    num_warmup = min(parts, last - stage)
    for part in range(num_warmup):
        _forward_of_stage(writer, group, stage, part)
    for part in range(num_warmup, parts):
        _forward_of_stage(writer, group, stage, part)
        _backward_of_stage(writer, group, stage, part - num_warmup)
    for part in range(parts - num_warmup, parts):
        _backward_of_stage(writer, group, stage, part)


def _forward_of_stage(writer: Writer, group: Group, stage: int, part: int) -> None:
    ranks, is_last = group.ranks, stage == len(group.ranks) - 1
    if stage:
        writer.wait_for_event(writer.send_or_receive(RECEIVE, group, ranks[stage - 1], ranks[stage]))
    _forward(writer, f" of {part}")
    if not is_last:
        writer.send_or_receive(SEND, group, ranks[stage], ranks[stage + 1])


def _backward_of_stage(writer: Writer, group: Group, stage: int, part: int) -> None:
    ranks, is_last = group.ranks, stage == len(group.ranks) - 1
    if not is_last:
        writer.wait_for_event(writer.send_or_receive(RECEIVE, group, ranks[stage + 1], ranks[stage]))
    _backward(writer, f" of {part}")
    if stage:
        writer.send_or_receive(SEND, group, ranks[stage], ranks[stage - 1])


def _receive(writer: Writer, group: Group | None, part: int) -> None:
    if group:
        writer.collective(RECEIVE, group, part, phase="forward")
        writer.wait_for(group)


def _send(writer: Writer, group: Group | None, part: int) -> None:
    if group:
        writer.collective(SEND, group, part, phase="forward")
