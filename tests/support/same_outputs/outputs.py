"""Outputs of a version for an input: exit codes, printed text, and the content of written files."""

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

from support.same_outputs.inputs import copy_input
from support.same_outputs.versions import Version

_PAGE_DATA = re.compile(rb'id="page-data"[^>]*>(.*?)<', re.S)
_COMMANDS = {
    "summary": ["summary", "INPUT", "--json", "--no-cache"],
    "check": ["check", "INPUT"],
    "merge": ["merge", "INPUT", "-o", "merged.json"],
    "report": ["report", "INPUT", "-o", "page.html", "--no-cache"],
}
_RECOVER = {"recover": ["recover", "INPUT"]}


def outputs_of(version: Version, source: Path, folder: Path) -> dict[str, Any]:
    """Run the commands on a copy of the input in a new folder; return what each made, by a name."""
    folder.mkdir(parents=True)
    own = copy_input(source, folder / source.name)
    found: dict[str, Any] = {}
    commands = (_RECOVER if (own / "live").is_dir() else {}) | _COMMANDS
    for name, command in commands.items():
        arguments = [source.name if part == "INPUT" else part for part in command]
        done = version.run("-m", "kinetoscope", *arguments, cwd=folder)
        found[f"{name}: exit code"] = done.returncode
        found[f"{name}: stderr"] = done.stderr
        found[f"{name}: stdout"] = _as_json(done.stdout)
    if (merged := folder / "merged.json").is_file():
        found["merged trace"] = _as_json(merged.read_text(encoding="utf-8"))
    if (page := folder / "page.html").is_file():
        found["page data"] = _page_data(page.read_bytes())
    shutil.rmtree(folder)
    return found


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _page_data(page: bytes) -> Any:
    """Return the page's document, and its columns as text; without the data, the page's size."""
    found = _PAGE_DATA.search(page)
    if found is None:
        return f"no data in {len(page):,} bytes"
    content = gzip.decompress(base64.b64decode(found[1]))
    length = int.from_bytes(content[:4], "little")
    return {"document": json.loads(content[4 : 4 + length]), "columns": content[4 + length :].hex()}
