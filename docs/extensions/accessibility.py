"""Pages for keyboards, screen readers and small screens: scrollable blocks, headings, landmarks, linked pictures."""

import re
from pathlib import Path
from typing import Any

REPLACEMENTS = {
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper colwidths-auto docutils container">': (
        '<div class="table-wrapper colwidths-auto docutils container" tabindex="0">'
    ),
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Site">',
    '<aside class="toc-drawer">': '<aside class="toc-drawer" aria-label="On this page">',
    '<aside class="toc-drawer no-toc">': '<aside class="toc-drawer no-toc" aria-label="On this page">',
}
"""HTML of Sphinx and Furo without what axe requires, and the HTML that has it."""

_PICTURE = re.compile(r'<img [^>]*class="(only-dark|only-light)" src="([^"]+)" />')
"""A picture of `repository_links`; on a small screen only the file itself is readable."""


def setup(app: Any) -> dict[str, Any]:
    app.connect("build-finished", _rewrite_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _rewrite_pages(app: Any, exception: Exception | None) -> None:
    """Replace the HTML of all pages, also of templates, which no earlier event contains."""
    if exception is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            text = path.read_text(encoding="utf-8")
            for old, new in REPLACEMENTS.items():
                text = text.replace(old, new)
            text = _PICTURE.sub(r'<a class="\1" href="\2">\g<0></a>', text)
            path.write_text(text, encoding="utf-8")
