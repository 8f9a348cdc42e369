"""Plain data as tables without scripts: names of any kind stay text, and long lists say how much more there is."""

from html.parser import HTMLParser

import pytest

from kinetoscope.core.text.wording import sanitize
from kinetoscope.frames.display import MAX_SHOWN_ROWS, render_html

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "</bdi></td></table><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "&lt;b&gt;",
    "\u202etxt.exe\u202c",
    "שלום",
]


class Page(HTMLParser):
    """The elements of a page, its attributes and its texts."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = set(), set(), [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def page(data, title="Data"):
    shown_page = Page(render_html(title, data))
    assert shown_page.open == []
    assert shown_page.tags <= {"div", "table", "caption", "tr", "th", "td", "bdi"}
    assert shown_page.attributes <= {"style", "colspan"}
    return shown_page


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_of_any_kind_stays_text_wherever_it_is(name):
    data = {name: 1, "facts": {name: name}, "rows": [{name: name, "nested": {"x": [name]}}], "list": [name]}
    found = page(data, title=name)
    assert found.texts.count(name) >= 5


def test_long_string_shows_its_start_end_and_length():
    (text,) = (text for text in page({"name": "x" * 10_000}).texts if text.startswith("xx"))
    assert text == "x" * 100 + "…" + "x" * 99 + " (10,000 characters)"


def test_control_characters_and_lone_surrogates_are_escaped():
    assert sanitize("a\x1b[2J\nb\ud800") == "a\\x1b[2J\\nb\\ud800"


def test_first_of_many_rows_are_shown_with_the_number_of_others():
    found = page({"steps": [{"step": number} for number in range(1000)]})
    assert "steps: 1,000" in found.texts
    assert f"… and {1000 - MAX_SHOWN_ROWS} more rows" in found.texts
    assert "19" in found.texts
    assert "20" not in found.texts


def test_only_the_rows_that_are_shown_are_made():
    made = []

    class Row:
        def to_dict(self):
            made.append(self)
            return {"value": 1}

    page({"rows": [Row() for _ in range(1000)]})
    assert len(made) == MAX_SHOWN_ROWS


def test_unknown_or_empty_choice_is_reported():
    texts = page({"host": None, "stragglers": [], "share": 0.123456789, "bytes": 1234567, "mean": 1234567.8}).texts
    assert texts[1:] == [
        "host",
        "-",
        "stragglers",
        "none",
        "share",
        "0.1235",
        "bytes",
        "1,234,567",
        "mean",
        "1,234,568",
    ]
