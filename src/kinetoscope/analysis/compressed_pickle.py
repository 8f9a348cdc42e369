"""analysis: what is kept of a trace as compressed bytes, while it is sent from process to process, or waits."""

import pickle
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any

from kinetoscope.frames.executors import map_function

_LEVEL = 1


def pack(value: object) -> bytes:
    """A value as compressed bytes."""
    return zlib.compress(pickle.dumps(value), _LEVEL)


def unpack(data: bytes) -> Any:
    """What was packed, by this process or one of its executor's."""
    return pickle.loads(zlib.decompress(data))


def packed_map_function(executor: Executor | None) -> Callable[..., Iterator[Any]]:
    """`map`, or what does the same in an executor, whose processes send back their results packed."""
    if executor is None:
        return map
    each = map_function(executor)
    return lambda work, *values: map(unpack, each(partial(_packed_result, work), *values))


def _packed_result(work: Callable[..., Any], *values: Any) -> bytes:
    return pack(work(*values))
