"""Metadata in the header of a trace: checks, and encoding as JSON."""

# torch.autograd does not export all that its own profiler uses.
# pyright: reportPrivateImportUsage=false

import json
from collections.abc import Mapping
from typing import Any

import kinetoscope.torch.private_names as private_names
from kinetoscope.core.job.ranks import torch_distributed
from kinetoscope.errors import SettingsError
from kinetoscope.torch.gloo_threads import add_gloo_threads


def encode_value(key: str, value: Any) -> str:
    """Return ``value`` as JSON; scalars and arrays of numpy and torch become numbers and lists.

    Raises:
        SettingsError: JSON cannot represent the value, or the key is not a string.
    """
    _check_key(key)
    try:
        return json.dumps(value, default=_to_plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"The metadata {key!r} cannot be written as JSON: {error}.") from error


def check_json(key: str, text: str) -> str:
    """Return ``text`` if it is JSON.

    Raises:
        SettingsError: The text is not JSON, or the key is not a string.
    """
    _check_key(key)
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except (TypeError, ValueError) as error:
        raise SettingsError(
            f"The metadata {key!r} is not JSON: {error}. Pass the value itself to add_metadata() instead."
        ) from error
    return text


def send_to_kineto(key: str, text: str) -> None:
    """Add the metadata to Kineto as well, for users who save Kineto's results themselves.

    Kineto turns a backslash into a slash and alters control characters, so metadata with either is left out.
    """
    if (key + text).isascii() and (key + text).isprintable() and "\\" not in key + text and '"' not in key:
        private_names.add_kineto_metadata(key, text)


def distributed_info() -> dict[str, Any] | None:
    """Return rank, world size and process groups; None if torch.distributed is not initialised."""
    distributed = torch_distributed()
    if distributed is None:
        return None
    info = {
        "backend": distributed.get_backend(),
        "rank": distributed.get_rank(),
        "world_size": distributed.get_world_size(),
        "pg_count": distributed.get_pg_count(),
        "pg_config": add_gloo_threads(private_names.all_process_groups(distributed), distributed),
    }
    if info["backend"] == "nccl":
        info["nccl_version"] = _nccl_version()
    return info


def _nccl_version() -> str:
    import torch.cuda.nccl

    return ".".join(map(str, torch.cuda.nccl.version()))


def decode_values(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata as values, for a header."""
    return {key: json.loads(text) for key, text in texts.items()}


def _check_key(key: object) -> None:
    if not isinstance(key, str):
        raise SettingsError(f"The key of metadata must be a string, not {key!r}.")


def _to_plain(value: Any) -> Any:
    for method in ("tolist", "item"):
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")
