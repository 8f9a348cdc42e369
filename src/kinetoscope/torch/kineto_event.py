"""torch: what Kineto's events can be asked. Names of methods flow in; questions for any version of torch flow out."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

_EVENT: Any = torch._C._autograd._KinetoEvent  # pyright: ignore[reportAttributeAccessIssue]
# What torch from 2.6 on did not always know of its events, and what stands for it there.
_UNKNOWN: dict[str, Any] = {
    "activity_type": None,
    "external_id": 0,
    "extra_meta": None,
    "flow_id": None,
    "flow_start": None,
    "flow_type": None,
    "is_hidden_event": False,
    "is_python_function": False,
    "metadata_json": None,
    "overload_name": "",
    "python_id": -1,
    "python_module_id": -1,
    "python_parent_id": -1,
    "structured_input_shapes": None,
    "structured_input_strides": None,
    "typed_metadata": None,
}


def question(method: str) -> Callable[[Any], Any]:
    """What asks an event for ``method``; where this torch does not have it, what always gives the same answer."""
    asked = getattr(_EVENT, method, None)
    if asked is not None:
        return asked
    answer = _UNKNOWN[method]
    return lambda event: answer


def frames_are_events() -> bool:
    """Whether Python's frames are among the events, as since torch 2.12."""
    return hasattr(_EVENT, "is_python_function")


def name_of(event: Any, read: Callable[[Any], str] = _EVENT.name) -> str:
    """The name of an event; torch may have lost it, and then gives whatever bytes are in its place."""
    try:
        return read(event)
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "replace")


def names_of(events: Sequence[Any], read: Callable[[Any], str] = _EVENT.name) -> list[str]:
    """The names of all events."""
    try:
        return list(map(read, events))
    except UnicodeDecodeError:
        return [name_of(event, read) for event in events]


def ask_each(events: Sequence[Any], method: str) -> list[Any]:
    """What ``method`` says of each; through the class, since looking it up on each takes longer than the call."""
    return list(map(question(method), events))
