"""Foreign texts that are printed: no control character, no unreadable length, and the same cut everywhere."""

import pytest

from kinetoscope.training.wording import printable, printable_lines, shortened, shown

LONG = "x" * 100_000
STEERING = ["\x1b[2J", "\r", "\b", "\x9b", "\u202e", "\u2066", "\u2028", "\u200f", "\ufeff", "\ud800"]


@pytest.mark.parametrize("text", STEERING)
@pytest.mark.parametrize("make", [shown, printable, printable_lines, lambda text: shortened(text, 40)])
def test_what_steers_a_terminal_is_escaped(make, text):
    made = make(f"a{text}b")
    assert made.isprintable()
    assert made.startswith("a\\")
    assert made.endswith("b")


def test_long_texts_are_cut_and_say_how_long_they_were():
    assert shown(LONG) == "x" * 200 + "… (100,000 characters)"
    assert shown(LONG, 10) == "x" * 10 + "… (100,000 characters)"
    assert printable(LONG) == "x" * 1000 + "… (100,000 characters)"
    assert shortened(LONG, 60) == "x" * 57 + "..."
    assert (
        printable_lines(f"Cannot read {LONG}: why.\nNext.")
        == f"Cannot read {'x' * 200}… (100,001 characters) why.\nNext."
    )


def test_a_long_line_of_short_words_is_cut_too():
    assert len(printable_lines("ab " * 50_000)) < 9000


def test_short_texts_and_long_paths_stay_as_they_are():
    path = "/".join(["folder"] * 500)
    assert printable_lines(f"Written: {path}") == f"Written: {path}"
    assert shown("Grüße, 世界") == "Grüße, 世界"
    assert shown(None) == "None"


def test_bytes_of_a_path_that_is_no_text_are_kept_for_the_terminal():
    assert printable_lines(b"\xff".decode(errors="surrogateescape")) == "\udcff"
