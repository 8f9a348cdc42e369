"""Lets people scroll wide blocks of code by keyboard."""

from typing import Any


def setup(app: Any) -> dict[str, Any]:
    app.connect("html-page-context", _reach_code)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _reach_code(_app: Any, _page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    if "body" in context:
        context["body"] = context["body"].replace("<pre>", '<pre tabindex="0">')
