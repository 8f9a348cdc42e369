"""Names that torch and CPython do not promise to keep, and the consequence where one is missing."""

from types import FrameType

from kinetoscope.core.background.private_names import PrivateObject

# torch.distributed.
default_store = PrivateObject(
    "torch.distributed.distributed_c10d",
    "_get_default_store",
    "the ranks do not compare their clocks, and do not agree on an id of this attempt",
    loaded="torch.distributed",
)

groups_of_process = PrivateObject(
    "torch.distributed.distributed_c10d",
    "_world",
    "a hang does not report the state of process groups, and the duration of collectives is unknown",
    loaded="torch.distributed",
)
dump_flight_recorder = PrivateObject(
    "torch._C._distributed_c10d",
    "_dump_fr_trace_json",
    "a hang does not name the collective, though torch's flight recorder is on",
    loaded="torch.distributed",
)

# Dynamo.
_UNCOMPILED = (
    "a compiled function with a ready-made `with marker:` inside runs uncompiled; use @marker or "
    "`with kinetoscope.marker(name):` there"
)


def _of_dynamo(module: str, name: str) -> PrivateObject:
    return PrivateObject(f"torch._dynamo.{module}", name, _UNCOMPILED, loaded="torch._dynamo")


variable_dispatch = _of_dynamo("variables.builder", "VariableBuilder._type_dispatch")
install_guards = _of_dynamo("variables.builder", "VariableBuilder.install_guards")
type_match = _of_dynamo("guards", "GuardBuilder.TYPE_MATCH")
make_constant = _of_dynamo("variables", "ConstantVariable.create")
null_context = _of_dynamo("variables.ctx_manager", "NullContextVariable")

in_dynamo = (variable_dispatch, install_guards, type_match, make_constant, null_context)
"""Objects that are needed to make Dynamo ignore markers."""

# CPython.
frames_of_threads = PrivateObject(
    "sys",
    "_current_frames",
    "stacks are not sampled, and growing objects are not searched for where another thread ends the run",
)


def all_frames() -> dict[int, FrameType]:
    """Return the current frame of each thread by its ident; none where Python does not expose them."""
    find_all = frames_of_threads.find()
    return {} if find_all is None else find_all()


def frame_of_thread(ident: int) -> FrameType | None:
    """Return the current frame of a thread; None if it is unknown."""
    return all_frames().get(ident)
