"""Valid ranges of the numbers in the header of a trace; a number outside of its range is reported and never used."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kinetoscope.core.job.ranks import Number
from kinetoscope.errors import TraceFileError

_MAX_VALUE = 2**62
_RANK_IN_NAME = re.compile(r"rank[_-]?([0-9]{1,9})(?![0-9])")
Count = Annotated[int, Meta(ge=0, le=_MAX_VALUE)]
Nanoseconds = Annotated[int, Meta(ge=-_MAX_VALUE, le=_MAX_VALUE)]
Amount = Annotated[int, Meta(ge=-_MAX_VALUE, le=_MAX_VALUE)] | Annotated[float, Meta(ge=-1e18, le=1e18)]
Moment = dict[str, Amount]
"""The fields of a timestamp, as `timestamp_fields` gives them."""


class _Anchor(msgspec.Struct):
    monotonic_ns: Nanoseconds
    unix_ns: Nanoseconds
    bound_ns: Count


class _ClockRelation(msgspec.Struct):
    """The relation of a clock to rank 0's."""

    measurements: list[tuple[Nanoseconds, Nanoseconds, Count]] = []
    reference: tuple[Nanoseconds, Nanoseconds, Count] | None = None
    offset_ns: Nanoseconds | None = None
    drift_ppm: Amount | None = None
    bound_ns: Count | None = None


class _Clock(msgspec.Struct):
    anchors: list[_Anchor] = []
    beside_rank0: _ClockRelation | None = None


class _KnownClock(msgspec.Struct):
    """The clock of one rank, in a merged trace."""

    rank: Number | None = None
    offset_ns: Nanoseconds | None = None
    drift_ppm: Amount | None = None
    bound_ns: Count | None = None


class _Distributed(msgspec.Struct):
    rank: Number | None = None
    world_size: Number | None = None


class _MergedFile(msgspec.Struct):
    """A file in a merged trace."""

    rank: Number | None = None
    begin_ns: Nanoseconds | None = None
    header: dict[str, Any] | None = None  # the one that it had


class _KinetoscopeHeader(msgspec.Struct):
    rank: Number | None = None
    local_rank: Number | None = None
    node_rank: Number | None = None
    world_size: Number | None = None
    cycle: Number | None = None
    pid: Number | None = None
    dropped: Count | None = None
    lost_cycles: Count | None = None
    lost_records: Count | None = None
    begin: Moment | None = None
    end: Moment | None = None
    warmup_batches: list[tuple[Count, Count]] | None = None
    clock: _Clock | None = None
    ranks: list[Number] | None = None
    num_ranks: Number | None = None
    num_files: Number | None = None
    clocks: list[_KnownClock] | None = None
    files: list[_MergedFile] | None = None


class _OwnHeader(msgspec.Struct):
    kinetoscope: _KinetoscopeHeader
    distributedInfo: _Distributed | None = None  # noqa: N815 - the key in the file
    baseTimeNanoseconds: Count | None = None  # noqa: N815 - the key in the file
    schemaVersion: Number | None = None  # noqa: N815 - the key in the file


class _ForeignDistributed(msgspec.Struct):
    """Other programs may write what they like, which is not used; but not a rank that none can have."""

    rank: Annotated[int, Meta(lt=2**31)] | float | str | list[Any] | dict[str, Any] | bool | None = None
    world_size: Annotated[int, Meta(lt=2**31)] | float | str | list[Any] | dict[str, Any] | bool | None = None


class _ForeignHeader(msgspec.Struct):
    distributedInfo: _ForeignDistributed | None = None  # noqa: N815 - the key in the file


# msgspec crashes if two threads read a type of struct for the first time, so that happens here.
for _kind in (_OwnHeader, _ForeignHeader):
    msgspec.json.Decoder(_kind)


def rank_in_name(name: str | os.PathLike[str]) -> int | None:
    """Return the rank in the name of a file, if there is a possible one."""
    match = _RANK_IN_NAME.search(Path(name).name)
    return int(match[1]) if match else None


def validate_header(name: str, header: Mapping[str, Any]) -> None:
    """Raise `TraceFileError` if a number in the header of the trace ``name`` is out of range or no number.

    Kinetoscope's headers are checked completely, foreign ones where they are used; also each header in a merged trace.
    """
    _validate_header(f"Cannot read the trace {name}: in its header", header)


def _validate_header(where: str, header: Mapping[str, Any]) -> None:
    fields = header.get("kinetoscope")
    if isinstance(fields, dict):
        validate_struct(where, header, _OwnHeader)
        for number, file in enumerate(fields.get("files") or ()):
            _validate_header(f"{where}, in that of its file {number}", file.get("header") or {})
    elif isinstance(header.get("distributedInfo"), dict):
        validate_struct(where, header, _ForeignHeader)


def is_distributed_info(value: object) -> bool:
    """Return whether a trace of Kinetoscope may have the value as its ``distributedInfo``."""
    try:
        return isinstance(msgspec.convert(value, _Distributed), _Distributed)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return False


def validate_struct(where: str, fields: Mapping[str, Any], kind: Any) -> None:
    """Raise `TraceFileError` with the field that does not fit into the struct ``kind``.

    ``where`` is the start of its message.
    """
    try:
        msgspec.convert(dict(fields), kind)
    except msgspec.ValidationError as error:
        raise TraceFileError(
            f"{where}, {describe_validation_error(error)}. Correct or remove it, or ask who wrote the file."
        ) from error
    except UnicodeEncodeError as error:
        raise TraceFileError(
            f"{where}, a text has letters that do not exist. Correct or remove it, or ask who wrote the file."
        ) from error


def describe_validation_error(error: msgspec.ValidationError) -> str:
    """Return the fault of a field, as in ``rank is out of range: expected `int` >= 0``."""
    expected, _, place = str(error).partition(" - at ")
    field = place.strip("`").removeprefix("$").removeprefix(".") or "all of it"
    if "matching regex" in expected:
        return f"{field} cannot be part of a file's name"
    return f"{field} is out of its range: {expected[:1].lower()}{expected[1:]}"


def read_object(value: Any, *names: str) -> dict[str, Any]:
    """Return the object at a path of names in a header, which may hold anything; empty if it is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}
