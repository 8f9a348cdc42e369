"""HTML from the templates next to our modules (``*.jinja``), in which jinja2 escapes every value."""

from functools import cache
from typing import TYPE_CHECKING, Any

from kinetoscope.core.text.wording import sanitize, sanitize_sentence

if TYPE_CHECKING:
    from jinja2 import Environment

_MAX_CHARACTERS = 200


@cache
def load_macros(path: str) -> Any:
    """Return the macros of a template, such as ``report/notebook/frame.jinja``.

    They return HTML that no macro escapes again. `str` makes a plain string of it, which other code may change.
    """
    return _environment().get_template(path).module


def _sanitize_html(value: object, max_characters: int = _MAX_CHARACTERS) -> str:
    return sanitize(value, max_characters, in_html=True)


@cache
def _environment() -> "Environment":
    import jinja2  # it takes 30 ms, which only those wait for who see HTML

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kinetoscope", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"shown": _sanitize_html, "printable": sanitize_sentence}
    return environment
