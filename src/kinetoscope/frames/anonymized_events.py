"""Frames of events without names of users."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import polars as pl

from kinetoscope.formats.anonymizer import Anonymizer
from kinetoscope.formats.chrome_scan import ARGUMENTS, decode_json_text
from kinetoscope.frames.events import ARGUMENT_TEXTS, event_schema

_NAMED = ("phase", "category", "name")
_SHAPE = "shape"  # a column for the time of the work: the arguments with 0 for each number
# Numbers with a fraction stay as they are written, with all their digits.
_DECODER = msgspec.json.Decoder(dict[str, Any], float_hook=lambda digits: msgspec.Raw(digits.encode()))


def anonymize_events(events: pl.LazyFrame, anonymizer: Anonymizer) -> pl.LazyFrame:
    """Return the events of a trace without names of users, in the same columns."""
    schema = event_schema()
    events = events.with_columns(pl.col(_NAMED[0]).cast(pl.String))
    changes = [
        change(events, anonymizer) for change in (_find_changed_names, _find_changed_arguments, _find_changed_fields)
    ]
    texts = {column: _find_changed_strings(events, column, anonymizer) for column in (*ARGUMENT_TEXTS, "id_text")}
    for change in reversed(changes):  # arguments are found by the names as they were
        events = _apply_change(events, change) if len(change) else events
    columns = [pl.col(column).cast(pl.String).replace(change) for column, change in texts.items() if change]
    return events.with_columns(columns).select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def _apply_change(events: pl.LazyFrame, change: pl.DataFrame) -> pl.LazyFrame:
    """Return the events with the columns ``new_...`` of a change in the rows that it is about."""
    new = [name for name in change.columns if name.startswith("new_")]
    on = [name for name in change.columns if name not in (*new, "is_changed")]
    joined = events.join(change.lazy(), on=on, how="left", nulls_equal=True, maintain_order="left")
    is_changed = pl.col("is_changed").fill_null(value=False)
    columns = [
        pl.when(is_changed).then(pl.col(name)).otherwise(pl.col(old)).alias(old)
        for name in new
        for old in [name.removeprefix("new_")]
    ]
    return joined.with_columns(columns).drop("is_changed", *new)


def _find_changed_names(events: pl.LazyFrame, anonymizer: Anonymizer) -> pl.DataFrame:
    """Return the categories and names that change, with what replaces them."""
    named = events.filter(pl.col("kind") != "metadata").select(_NAMED).unique(maintain_order=True).collect()
    rows = []
    for phase, category, name in named.iter_rows():
        event = {"ph": phase, "cat": category, "name": name or ""}
        new_category, new_name = anonymizer.category_of(event), anonymizer.name_of(event)
        if (new_category, new_name) != (category or "", name or ""):
            rows.append((phase, category, name, None if category is None else new_category, new_name, True))
    return _build_frame(rows, *_NAMED, "new_category", "new_name")


def _find_changed_arguments(events: pl.LazyFrame, anonymizer: Anonymizer) -> pl.DataFrame:
    """Return the arguments that change, with what replaces them.

    Arguments that differ in numbers only change alike, so most are not decoded one by one.
    """
    shape = pl.col("args").cast(pl.String).str.replace_all(r"\d+", "0").alias(_SHAPE)
    given = events.filter(pl.col("args").is_not_null()).select(*_NAMED, "args", shape)
    shapes = given.select(*_NAMED, _SHAPE).unique(maintain_order=True).collect()
    scratch = Anonymizer()
    changing = [row for row in shapes.iter_rows() if _is_changing(row, scratch)]
    if not changing:
        return _build_frame([], *_NAMED, "args", "new_args")
    schema: dict[str, Any] = dict.fromkeys((*_NAMED, _SHAPE), pl.String)
    wanted = pl.DataFrame(changing, schema=schema, orient="row").lazy()
    found = given.join(wanted, on=list(schema), how="semi", nulls_equal=True)
    rows = found.select(*_NAMED, "args").unique(maintain_order=True).collect().iter_rows()
    changed = [(*row, _anonymize_arguments(row[:3], _DECODER.decode(row[3]), anonymizer), True) for row in rows]
    return _build_frame(changed, *_NAMED, "args", "new_args")


def _is_changing(row: tuple[str, ...], scratch: Anonymizer) -> bool:
    *named, shape = row
    try:
        members = msgspec.json.decode(shape, type=dict[str, Any])
    except ValueError:  # a digit was part of an escape
        return True
    return scratch.arguments_of(_build_event(named, members)) != members


def _anonymize_arguments(named: Sequence[Any], members: dict[str, Any], anonymizer: Anonymizer) -> bytes:
    return msgspec.json.encode(anonymizer.arguments_of(_build_event(named, members)))


def _build_event(named: Sequence[Any], members: dict[str, Any]) -> dict[str, Any]:
    return dict(zip(("ph", "cat", "name"), named, strict=True)) | {"args": members}


def _find_changed_fields(events: pl.LazyFrame, anonymizer: Anonymizer) -> pl.DataFrame:
    """Return the other fields of events that change, with what replaces them."""
    fields = events.select("fields").drop_nulls().unique(maintain_order=True).collect()["fields"]
    changed = [(field, msgspec.json.encode(anonymizer.event(_DECODER.decode(field))), True) for field in fields]
    return _build_frame([row for row in changed if row[0] != row[1]], "fields", "new_fields")


def _find_changed_strings(events: pl.LazyFrame, column: str, anonymizer: Anonymizer) -> dict[str, str]:
    """Return what replaces the texts in a column of arguments, or of ids."""
    texts = events.select(pl.col(column).cast(pl.String)).drop_nulls().unique(maintain_order=True).collect()[column]
    if column == "id_text":
        return {text: anonymizer.redact_id(text) for text in texts}
    key = ARGUMENTS[column][0]
    return {text: new for text in texts if (new := _argument_text(key, text, anonymizer)) != text}


def _argument_text(key: str, text: str, anonymizer: Anonymizer) -> str:
    value = decode_json_text(text.encode()) if text[:1] in "[{" else text
    redacted = anonymizer.arguments({key: value})[key]
    return redacted if isinstance(redacted, str) else json.dumps(redacted, ensure_ascii=False)


def _build_frame(rows: list[tuple[Any, ...]], *columns: str) -> pl.DataFrame:
    types = {column: pl.Binary if column.endswith(("args", "fields")) else pl.String for column in columns}
    return pl.DataFrame(rows, schema=types | {"is_changed": pl.Boolean}, orient="row")
