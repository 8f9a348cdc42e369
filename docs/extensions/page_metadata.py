"""Metadata of pages: descriptions for search engines, OpenGraph for previews of links, and edit links.

Addresses come from `html_baseurl` and `edit_url` in conf.py. Without them a page has no address and no edit link.
"""

from html import escape
from textwrap import shorten
from typing import Any

from docutils import nodes
from repository_links import ORIGINS

_MAX_DESCRIPTION = 200
"""Search engines show about 160 characters, previews of links up to 200."""
_PREVIEW = "images/report.png"


def setup(app: Any) -> dict[str, Any]:
    app.add_config_value("edit_url", "", "html", str)
    app.connect("html-page-context", _add_metadata)
    app.connect("html-page-context", _add_edit_link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _add_metadata(app: Any, page: str, _template: str, context: dict[str, Any], doctree: Any) -> None:
    if doctree is None:  # the index and the search page
        return
    title = app.env.titles[page].astext()
    entries = {"og:title": title, "og:type": "website", "og:site_name": app.config.project}
    tags = []
    if description := describe(doctree):
        entries["og:description"] = description
        tags.append(f'<meta name="description" content="{escape(description)}">')
    if base := app.config.html_baseurl:
        entries["og:url"] = context["pageurl"]
        if image := app.env.images.get(_PREVIEW):
            entries["og:image"] = f"{base.rstrip('/')}/{app.builder.imagedir}/{image[1]}"
    tags += [f'<meta property="{name}" content="{escape(value)}">' for name, value in entries.items()]
    context["metatags"] = "\n".join([context.get("metatags", ""), *tags])


def describe(doctree: Any) -> str:
    """Return the first paragraph of a page, shortened; empty for a page without one."""
    for paragraph in doctree.findall(nodes.paragraph):
        text = "".join(paragraph.findall(nodes.Text))  # not of images
        if text.strip() and isinstance(paragraph.parent, nodes.document | nodes.section):
            return shorten(text, _MAX_DESCRIPTION, placeholder=" …")
    return ""


def _add_edit_link(app: Any, page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    origin = ORIGINS.get(page)
    if origin is None and page.startswith("generated/examples/") and not page.endswith("/index"):
        origin = f"{page.removeprefix('generated/')}.py"
    elif origin is None and not page.startswith("generated/"):
        origin = f"docs/{page}{context.get('page_source_suffix', '')}"
    context["theme_source_edit_link"] = f"{app.config.edit_url}{origin}" if app.config.edit_url and origin else ""
