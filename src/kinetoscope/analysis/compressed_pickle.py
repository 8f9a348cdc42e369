"""Compressed pickles of summaries, while they are sent between processes, or wait."""

import pickle
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Any

from kinetoscope.frames.executors import map_function

_LEVEL = 1


def pack(value: object) -> bytes:
    """Return a value as compressed bytes."""
    return zlib.compress(pickle.dumps(value), _LEVEL)


def unpack(data: bytes) -> Any:
    """Return the value of packed bytes, which this process or one of its executor's packed."""
    return pickle.loads(zlib.decompress(data))


def packed_map_function(executor: Executor | None) -> Callable[..., Iterator[Any]]:
    """Return `map`, or the equivalent of an executor whose processes send back packed results."""
    if executor is None:
        return map
    each = map_function(executor)
    return lambda work, *values: map(unpack, each(partial(_packed_result, work), *values))


def _packed_result(work: Callable[..., Any], *values: Any) -> bytes:
    return pack(work(*values))
