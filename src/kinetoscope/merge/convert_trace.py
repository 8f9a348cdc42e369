"""Conversion of one trace to the format of the output's name."""

import os
from collections.abc import Callable
from pathlib import Path

from kinetoscope.errors import SettingsError
from kinetoscope.formats.chrome import require_event
from kinetoscope.formats.chrome_stream import open_trace
from kinetoscope.formats.compression import UnpackedStream, compressed_by_name
from kinetoscope.formats.perfetto import SUFFIXES as PERFETTO_SUFFIXES
from kinetoscope.merge.merge_traces import merge_traces
from kinetoscope.merge.trace_output import STDOUT, binary_output, is_perfetto, unpacked_suffix

_PIECE_BYTES = 1 << 20

Progress = Callable[[int, int], None]


def convert_trace(
    source: str | os.PathLike[str], output: str | os.PathLike[str], on_progress: Progress | None = None
) -> list[str]:
    """Write the trace in ``source`` to ``output``, in the format of its name; return notes, in sentences.

    To ``.json``, ``.json.gz`` or ``.json.zst`` (or ``-``, the standard output) the text is copied byte by byte, so it
    can be converted back. To ``.pftrace`` every event is written anew: the process is the rank, and fields that the
    format lacks are left out.

    Raises:
        SettingsError: the name is one of another format.
        TraceFileError: the file cannot be read.
    """
    target = Path(output)
    if is_perfetto(Path(source)):
        raise SettingsError(
            f"Cannot convert {source}: Perfetto's format does not hold all of the JSON. Convert the JSON instead."
        )
    if is_perfetto(target):
        return merge_traces(target, source, on_progress=on_progress).notes
    if target != STDOUT and unpacked_suffix(target) != ".json":
        raise SettingsError(
            f"Cannot convert to {target}: its name must end in .json, {' or '.join(PERFETTO_SUFFIXES)}, "
            "alone or with .gz or .zst behind it."
        )
    return _repack(source, target, on_progress)


def _repack(source: str | os.PathLike[str], target: Path, on_progress: Progress | None) -> list[str]:
    buffer = memoryview(bytearray(_PIECE_BYTES))
    name = os.fspath(source)
    require_event(name)
    with open_trace(name) as file:
        stream = UnpackedStream(file, name)
        size_bytes, num_bytes = os.path.getsize(name), stream.readinto(buffer)
        with binary_output(target) as raw, compressed_by_name(raw, target) as packed:
            while num_bytes:
                packed.write(buffer[:num_bytes])
                if on_progress is not None:
                    on_progress(file.tell(), size_bytes)
                num_bytes = stream.readinto(buffer)
        return [stream.damage] if stream.damage else []
