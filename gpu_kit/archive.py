"""A part's archive: a zip file that grows by a folder at a time and stays readable and below its limit."""

import os
import shutil
import zipfile
import zlib
from pathlib import Path

MAX_ARCHIVE_BYTES = 15 << 20
"""A transfer may refuse files of more than 16 MiB."""

_LEVEL = 6
_HEADER_BYTES = 256  # of a member, in the file and in the directory at its end, beside its name twice


def add_folder(archive: Path, folder: Path, name: str) -> list[str]:
    """Add the files of a folder to an archive, below ``name``, the smallest first.

    Returns:
        The files that were left out, each with the reason.
    """
    partial = archive.with_suffix(".partial")
    if archive.exists():
        shutil.copyfile(archive, partial)
    size, left_out = partial.stat().st_size if partial.exists() else 0, []
    with zipfile.ZipFile(partial, "a", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL) as file:
        for path in sorted(_files_below(folder), key=lambda path: path.stat().st_size):
            member = f"{name}/{path.relative_to(folder)}"
            content = path.read_bytes()
            size += len(zlib.compress(content, _LEVEL)) + 2 * len(member.encode()) + _HEADER_BYTES
            if size > MAX_ARCHIVE_BYTES:
                left_out.append(f"{member}: the archive would be larger than {MAX_ARCHIVE_BYTES >> 20} MiB")
                break
            file.writestr(member, content)
    os.replace(partial, archive)
    return left_out


def _files_below(folder: Path) -> list[Path]:
    """Return the regular files below a folder; sockets, pipes and links stay behind."""
    return [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
