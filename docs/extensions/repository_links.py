"""Lets links lead to the same place on the pages as on the repository's web view.

There a link may lead to a folder, or to a file outside of ``docs``. Of those that documents link to, the pages have
copies (`generated_pages`); a link to any other one is a warning. A ``<picture>`` for light and dark becomes two images;
the theme shows one.
"""

import os
import re
from pathlib import Path
from typing import Any

from generated_pages import FROM_FILES, ROOT
from sphinx.util import logging

_log = logging.getLogger(__name__)
_FENCED = re.compile(r"^(```+)[^\n]*\n.*?^\1 *$", re.M | re.S)
_LINK = re.compile(r"\]\((?!\w+:|#|/)([^)#\s]+)(#[^)\s]*)?\)")
_PICTURE = re.compile(r'<picture><source [^>]*srcset="([^"]+)"><img alt="([^"]*)" src="([^"]+)"></picture>')
_IMAGES = "\n".join(
    f"```{{image}} {picture}\n:alt: {alt}\n:class: only-{scheme}\n```\n"
    for scheme, picture, alt in (("dark", r"\1", r"\2"), ("light", r"\3", r"\2"))
)
ORIGINS = {f"generated/{Path(page).with_suffix('')}": path for path, page in FROM_FILES.items()}
"""Documents outside of this folder, by the page that has a copy."""


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", _rewrite_links)
    return {"parallel_read_safe": True}


def _rewrite_links(_: Any, page: str, source: list[str]) -> None:
    if page in ORIGINS or not page.startswith("generated/"):
        origin = ROOT / ORIGINS.get(page, f"docs/{page}.md")
        source[0] = rewritten(_PICTURE.sub(_IMAGES, source[0]), origin)


def rewritten(text: str, origin: Path) -> str:
    """A document with its links as its page needs them, but for what is in blocks of code."""
    parts, end = [], 0
    for fenced in _FENCED.finditer(text):
        parts += [_rewritten(text[end : fenced.start()], origin), fenced[0]]
        end = fenced.end()
    return "".join([*parts, _rewritten(text[end:], origin)])


def _rewritten(text: str, origin: Path) -> str:
    return _LINK.sub(lambda link: f"]({_page_of(link[1], origin)}{link[2] or ''})", text)


def _page_of(target: str, origin: Path) -> str:
    """Return the page of a linked document, or the link itself where there is none."""
    path = os.path.relpath(os.path.normpath(origin.parent / target), ROOT)
    if path in FROM_FILES:
        return f"/generated/{FROM_FILES[path]}"
    if path in ("examples", "docs/decisions"):
        return {"examples": "/generated/examples/index.md"}.get(path, "/decisions/README.md")
    if path.startswith("examples/"):
        return f"/generated/{path.removesuffix('.py')}.md"
    if path.startswith("docs/") and (ROOT / path).is_file():
        return "/" + path.removeprefix("docs/")
    _log.warning("%s links to %s, which no page has.", origin.relative_to(ROOT), path)
    return target
