"""FLOPs of one call of an operator, from the shapes of its arguments.

They equal those of torch's `FlopCounterMode`: a matmul takes two for each pair of multiplied elements; attention counts
without its mask; biases, and everything outside matmuls, convolutions and attention, do not count.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Shape = Sequence[int]

_MAX_FLOPS = 2**53
"""No call has as many operations, and floats are exact below."""


@dataclass(frozen=True)
class Work:
    """The work of one call.

    ``flops`` is what torch counts, ``executed_flops`` what is computed: torch counts the gradient of the weights of a
    grouped convolution as if each group had all channels. ``elements`` counts the elements of all matrices that are
    read and written, each once.
    """

    flops: int
    executed_flops: int
    elements: int


@dataclass(frozen=True)
class Formula:
    """The formula of one operator: from the shapes of its arguments, and the ``values`` of those that are no tensors.

    ``first_factor`` is the index of the first factor among the arguments.
    """

    work: Callable[[Sequence[Any], Sequence[str]], Work]
    first_factor: int = 0
    has_values: bool = False


def estimate_work(name: str, shapes: Sequence[Any], values: Sequence[str] = ()) -> Work | None:
    """Return the work of a call of an operator; None where it is unknown.

    Args:
        name: name of the operator, a key of `FORMULAS`.
        shapes: shapes of its arguments, as in ``Input Dims``.
        values: values of its arguments, as in ``Concrete Inputs``.
    """
    formula = FORMULAS[name]
    try:
        work = formula.work(shapes[formula.first_factor :], values)
        return (
            work
            if all(0 <= number < _MAX_FLOPS for number in (work.flops, work.executed_flops, work.elements))
            else None
        )
    except (ValueError, IndexError, TypeError, ArithmeticError):
        return None


def _matmul(shapes: Sequence[Any], _: Sequence[str]) -> Work:
    """Return the work of a matmul, batched or not."""
    (*rows, inner), (*_, same, columns) = shapes[:2]
    if inner != same:
        raise ValueError(f"{inner} columns cannot meet {same} rows")
    size = math.prod(rows) * columns
    return _sum_work(2 * size * inner, *shapes[:2], [size])


def _convolution(shapes: Sequence[Any], values: Sequence[str]) -> Work:
    """Return the work of a convolution.

    Args:
        shapes: those of the source and of the weights.
        values: from 3 on stride, padding, dilation, whether it is transposed, output padding, groups.
    """
    source, weights = shapes[:2]
    is_transposed = _is_true(values[6])
    result = _convolution_shape(source, weights, values)
    positions = source if is_transposed else result
    return _sum_work(_convolution_flops(positions, weights), source, weights, result)


def _convolution_backward(shapes: Sequence[Any], values: Sequence[str]) -> Work:
    """Return the work of the gradients of the source and of the weights, as far as the mask in ``values`` has them."""
    gradient, source, weights = shapes[:3]
    is_transposed, mask = _is_true(values[7]), [_is_true(value) for value in _split_list(values[10])]
    positions, channels = (source, gradient[1]) if is_transposed else (gradient, source[1])
    once, groups = _convolution_flops(positions, weights), channels // weights[1]
    num_gradients = mask[0] + mask[1]
    elements = sum(map(math.prod, (gradient, source, weights)))
    return Work(once * (mask[0] + mask[1] * groups), once * num_gradients, elements * num_gradients)


def _convolution_flops(positions: Shape, weights: Shape) -> int:
    """Return the FLOPs of a convolution: its weights multiply each position of a sample, in all channels of a group."""
    return 2 * positions[0] * math.prod(positions[2:]) * math.prod(weights)


def _convolution_shape(source: Shape, weights: Shape, values: Sequence[str]) -> list[int]:
    stride, padding, dilation, output_padding = (
        _per_dimension(values[index], len(weights) - 2) for index in (3, 4, 5, 7)
    )
    extents = [step * (size - 1) for step, size in zip(dilation, weights[2:], strict=True)]
    sizes = list(zip(source[2:], stride, padding, extents, output_padding, strict=True))
    if _is_true(values[6]):
        sizes_of_result = [(size - 1) * step - 2 * pad + extent + extra + 1 for size, step, pad, extent, extra in sizes]
        return [source[0], weights[1] * int(values[8]), *sizes_of_result]
    return [source[0], weights[0], *((size + 2 * pad - extent - 1) // step + 1 for size, step, pad, extent, _ in sizes)]


def _attention(shapes: Sequence[Any], _: Sequence[str]) -> Work:
    """Return the work of attention: of queries with keys, and of the result with values."""
    queries, keys, values = shapes[:3]
    pairs, width, result = _attention_sizes(queries, keys, values)
    return _sum_work(2 * pairs * (width + result[-1]), queries, keys, values, result)


def _attention_backward(shapes: Sequence[Any], _: Sequence[str]) -> Work:
    """Return the work of five matmuls: the scores once more, and the gradients of scores, values, queries and keys."""
    gradient, queries, keys, values = shapes[:4]
    pairs, width, result = _attention_sizes(queries, keys, values)
    if list(gradient) != result:
        raise ValueError("a gradient has another shape than what it is of")
    tensors = (gradient, queries, keys, values)
    return _sum_work(2 * pairs * (3 * width + 2 * result[-1]), *tensors, *tensors)


def _attention_sizes(queries: Shape, keys: Shape, values: Shape) -> tuple[int, int, list[int]]:
    """Return the number of query-key pairs in all heads, their width, and the shape of the result."""
    batch, heads, num_queries, width = queries
    _, heads_of_keys, num_keys, width_of_keys = keys
    _, _, num_values, width_of_values = values
    if heads % heads_of_keys or num_keys != num_values or width != width_of_keys:
        raise ValueError("queries, keys and values do not fit each other")
    return batch * heads * num_queries * num_keys, width, [batch, heads, num_queries, width_of_values]


def _token_major(work: Callable[[Sequence[Any], Sequence[str]], Work], num_tensors: int, lengths: int) -> Formula:
    """Return the formula of attention whose first ``num_tensors`` tensors have positions before heads.

    Args:
        work: the work of head-major attention.
        num_tensors: number of tensors whose dimensions are swapped.
        lengths: index of the argument with the lengths of samples. If it is present, the work is unknown: shapes do
            not show lengths.
    """

    def of_samples(shapes: Sequence[Any], values: Sequence[str]) -> Work:
        if len(shapes) > lengths and shapes[lengths]:
            raise ValueError("the lengths of samples are unknown")
        swapped = [[batch, heads, positions, width] for batch, positions, heads, width in shapes[:num_tensors]]
        return work(swapped, values)

    return Formula(of_samples)


def _sum_work(flops: int, *shapes: Shape) -> Work:
    return Work(flops, flops, sum(map(math.prod, shapes)))


def _is_true(value: str) -> bool:
    return {"True": True, "False": False}[value] if value in ("True", "False") else bool(int(value))


def _split_list(value: str) -> list[str]:
    return [item.strip() for item in str(value).strip("[]").split(",")]


def _per_dimension(value: str, count: int) -> list[int]:
    """Return one number for each dimension; a single one stands for all."""
    numbers = [int(item) for item in _split_list(value)]
    return numbers * count if len(numbers) == 1 else numbers


_ATTENTION = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")

FORMULAS: dict[str, Formula] = {
    "aten::mm": Formula(_matmul),
    "aten::bmm": Formula(_matmul),
    "aten::_scaled_mm": Formula(_matmul),
    "aten::addmm": Formula(_matmul, first_factor=1),
    "aten::baddbmm": Formula(_matmul, first_factor=1),
    "aten::convolution": Formula(_convolution, has_values=True),
    "aten::_convolution": Formula(_convolution, has_values=True),
    "aten::convolution_backward": Formula(_convolution_backward, has_values=True),
    **{f"aten::_scaled_dot_product_{kind}": Formula(_attention) for kind in _ATTENTION},
    **{f"aten::_scaled_dot_product_{kind}_backward": Formula(_attention_backward) for kind in _ATTENTION},
    "aten::_flash_attention_forward": _token_major(_attention, 3, lengths=3),
    "aten::_flash_attention_backward": _token_major(_attention_backward, 4, lengths=6),
    "aten::_efficient_attention_forward": _token_major(_attention, 3, lengths=4),
    "aten::_efficient_attention_backward": _token_major(_attention_backward, 4, lengths=6),
}
"""The operators whose calls are counted, by name, unless they are inside another one.

The mathematical form of attention consists of matmuls.
"""
