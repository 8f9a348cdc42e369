"""Line breaks in prose: none before a percent sign, and none within a short word of inline code."""

import re
from typing import Any

from docutils import nodes

_PERCENT = re.compile(r"(?<=\d) (?=%)")
_MAX_SHORT = 24
"""Characters of a word of code that fits on a line of the narrowest screen, also in a table."""


def setup(app: Any) -> dict[str, Any]:
    app.connect("doctree-read", _prevent_breaks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _prevent_breaks(_app: Any, doctree: nodes.document) -> None:
    for literal in doctree.findall(nodes.literal):
        if max(map(len, literal.astext().split()), default=0) <= _MAX_SHORT:
            literal["classes"].append("short")
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.literal | nodes.literal_block) and _PERCENT.search(text):
            text.parent.replace(text, nodes.Text(_PERCENT.sub("\N{NO-BREAK SPACE}", text)))
