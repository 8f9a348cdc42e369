"""Short paths without homes and user names."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

_NO_PART = r"/\\:;,\"'()<>|\n"
_FOLDER = rf"[^\s{_NO_PART}](?:[^{_NO_PART}]*[^\s{_NO_PART}])?"  # may have spaces inside, as in /home/a b/c.py
_PATH = re.compile(rf"(?<![\w/\\.:~-])(?:[A-Za-z]:|~\w*|\.\.(?:[/\\]\.\.)*)?[/\\](?:{_FOLDER}[/\\])+[^\s{_NO_PART}]+")
_FILE = re.compile(r"[^.].*\.[A-Za-z]\w{0,5}")
_LIBRARY = re.compile(r".*/(?:(?:site|dist)-packages|lib/python\d[\d.]*t?)/(?=.)")
_NO_NAME = re.compile(r"|\.\.?|[A-Za-z]:|~\w*")
_HOMES = ("home", "Users", "users")
_ROOTS = frozenset(
    (
        *("home", "Users", "users", "root", "mnt", "media", "Volumes", "net", "nfs", "export", "gpfs", "lustre", "fsx"),
        *("data", "scratch", "shared", "proj", "projects", "work", "workspace", "workspaces"),
        *("etc", "lib", "opt", "private", "run", "srv", "tmp", "usr", "var"),
    )
)


def shorten_paths(text: str, project: str = "") -> str:
    """Return ``text`` with each absolute path of a file shortened, so that no home and no user name is left in it.

    What is in a Python library begins with the package (``torch/nn/modules/linear.py``), what is in the folder
    ``project`` begins below it (``model/layers.py``); of any other path the file's name is left. URLs stay as they are,
    and so do names with slashes that are no files, such as ``/model/layer 1``.
    """
    if "/" not in text and "\\" not in text:
        return text
    return _PATH.sub(lambda match: _shorten(match[0], project), text)


def base_name(path: str) -> str:
    """Return the name of a file or folder without its parents; "" for a home and where there is none.

    For a URL it is the name of its target: text after a ``?`` may be a key. It is valid text, also where the file
    system's name is not.
    """
    path = path.partition("://")[2].partition("?")[0].partition("#")[0] if "://" in path else path
    parts = _parts(_plain(path))
    name = "" if not parts or (len(parts) == 2 and parts[0] in _HOMES) else parts[-1]
    return name.encode("utf-8", "replace").decode()


def project_folder(texts: Iterable[str]) -> str:
    """Return the common folder of all source files in ``texts`` that are in no library; "" if there is none.

    It is the ``project`` of `shorten_paths`.
    """
    paths = {_plain(match[0]) for text in texts for match in _PATH.finditer(text)}
    folders = {path.rpartition("/")[0] for path in paths if path.endswith(".py") and not _LIBRARY.match(path)}
    folders = {folder for folder in folders if folder.startswith("/") or folder[1:2] == ":"}
    try:
        common = os.path.commonpath(folders) if folders else ""
    except ValueError:  # on several drives
        return ""
    return "" if is_shared_folder(common) else common


def is_shared_folder(folder: str) -> bool:
    """Return whether the folder belongs to no project, such as ``/`` and ``/home``."""
    parts = _parts(_plain(folder))
    return not parts or (len(parts) == 1 and parts[0] in _ROOTS - {"root"})


def is_in_library(path: str) -> bool:
    """Return whether the file is in a Python library, or in Python itself."""
    return _LIBRARY.match(_plain(path)) is not None


def _shorten(path_text: str, project: str) -> str:
    path = _plain(path_text)
    if match := _LIBRARY.match(path):
        return path[match.end() :]
    if project and path.startswith(f"{_plain(project).rstrip('/')}/"):
        return path[len(_plain(project).rstrip("/")) + 1 :]
    parts = _parts(path)
    if not parts or (path.startswith("/") and parts[0] not in _ROOTS and not _FILE.fullmatch(parts[-1])):
        return path_text
    return "~" if len(parts) == 2 and parts[0] in _HOMES else parts[-1]


def _plain(path: str) -> str:
    return path.replace("\\", "/")


def _parts(path: str) -> list[str]:
    """Return the names in a path, without a drive, ``~user`` and ``..``."""
    return [part for part in path.split("/") if not _NO_NAME.fullmatch(part)]


def short_path(path: Path) -> str:
    """Return a path relative to the working directory if it is below that, else the whole path."""
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # that directory was deleted; or it is on another drive
        return str(path)
    return str(path) if relative.startswith("..") else relative
