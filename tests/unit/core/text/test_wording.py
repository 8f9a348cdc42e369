"""Foreign texts that are printed: no control character, no unreadable length, and the same cut everywhere."""

import pytest

from kinetoscope.core.text.wording import (
    describe_failure,
    find_gaps,
    format_duration,
    format_ranges,
    format_ranks,
    sanitize,
    sanitize_lines,
    sanitize_sentence,
    shorten_distinctly,
    shorten_name,
)

LONG = "x" * 100_000
STEERING = ["\x1b[2J", "\r", "\b", "\x9b", "\u202e", "\u2066", "\u2028", "\u200f", "\ufeff", "\ud800"]


@pytest.mark.parametrize("text", STEERING)
@pytest.mark.parametrize("make", [sanitize, sanitize_sentence, sanitize_lines, lambda text: shorten_name(text, 40)])
def test_terminal_control_sequences_are_escaped(make, text):
    made = make(f"a{text}b")
    assert made.isprintable()
    assert made.startswith("a\\")
    assert made.endswith("b")


def test_long_texts_are_cut_and_say_how_long_they_were():
    assert sanitize(LONG) == "x" * 100 + "…" + "x" * 99 + " (100,000 characters)"
    assert sanitize("abcdefghijklmnop", 10) == "abcde…mnop (16 characters)"
    assert sanitize_sentence(LONG) == "x" * 500 + "…" + "x" * 499 + " (100,000 characters)"
    assert sanitize_lines(f"Cannot read {LONG}: why.\nNext.") == (
        f"Cannot read {'x' * 100}…{'x' * 98}: (100,001 characters) why.\nNext."
    )


@pytest.mark.parametrize(("longest", "cut"), [(26, "abcdefghijklmnopqrstuvwxyz"), (9, "abcd…wxyz"), (10, "abcde…wxyz")])
def test_a_name_that_is_too_long_is_cut_in_its_middle(longest, cut):
    assert shorten_name("abcdefghijklmnopqrstuvwxyz", longest) == cut


def test_a_name_with_control_characters_is_not_longer_than_its_cell():
    assert len(shorten_name("\x1b" * 100, 40)) == 40
    assert [shorten_name(name, 40) for name in ("", None, "é" * 40)] == ["", "None", "é" * 40]


KERNEL = (
    "elementwise_kernel<4, at::native::FillFunctor<{}>, std::array<char*, 1ul> >(int, long, std::array<char*, 1ul>)"
)


@pytest.mark.parametrize("longest", [20, 40, 60, 100])
def test_kernels_that_differ_in_one_template_argument_are_distinguished(longest):
    names = [KERNEL.format(of) for of in ("float", "double", "float")] + ["aten::mm", ""]
    cut = shorten_distinctly(names, longest)
    assert cut[0] == cut[2]
    assert cut[0] != cut[1]
    assert cut[3:] == names[3:]
    assert all(len(name) <= longest for name in cut)
    assert all(shown_of in name for name, shown_of in zip(cut, ("<flo", "<dou"), strict=False))


@pytest.mark.parametrize("longest", [12, 20, 40])
def test_three_names_that_differ_late_are_distinguished_too(longest):
    names = [
        f"{'begin ' * 10}{part}{' end' * 40}" for part in ("one " + "x" * 60 + "a", "one " + "x" * 60 + "b", "two")
    ]
    cut = shorten_distinctly(names, longest)
    assert len(set(cut)) == 3
    assert all(len(name) <= longest for name in cut)


def test_names_that_differ_at_their_ends_or_in_length_are_distinguished():
    assert shorten_distinctly(["a" * 60 + "x", "a" * 60 + "y"], 9) == ["aaaa…aaax", "aaaa…aaay"]
    short, long = shorten_distinctly(["a" * 60, "a" * 70], 20)
    assert short != long
    assert shorten_distinctly([], 20) == []


def test_a_long_line_of_short_words_is_cut_too():
    assert len(sanitize_lines("ab " * 50_000)) < 9000


def test_short_strings_and_long_paths_are_unmodified():
    path = "/".join(["folder"] * 500)
    assert sanitize_lines(f"Written: {path}") == f"Written: {path}"
    assert sanitize("Grüße, 世界") == "Grüße, 世界"
    assert sanitize(None) == "None"


def test_bytes_of_a_path_that_is_no_text_are_kept_for_the_terminal():
    assert sanitize_lines(b"\xff".decode(errors="surrogateescape")) == "\udcff"


@pytest.mark.parametrize(
    ("time_ns", "expected"),
    [
        (0, "0.000 ms"),
        (1234, "0.001 ms"),
        (46_234_567, "46.2 ms"),
        (999_400_000, "999 ms"),
        (1_523_000_000, "1.52 s"),
        (99_940_000_000, "99.9 s"),
        (100_400_000_000, "1 min 40 s"),
        (999_990_000, "1.00 s"),
        (99_960_000_000, "1 min 40 s"),
        (3_599_600_000_000, "1 h 0 min"),
        (3_600_000_000_000, "1 h 0 min"),
        (11_100_000_000_000, "3 h 5 min"),
        (90_000_000_000_000, "1 day 1 h"),
        (10**18, "11,574 days 1 h"),
    ],
)
def test_a_time_is_in_units_that_people_read(time_ns, expected):
    assert format_duration(time_ns) == expected


def test_numbers_are_named_in_ranges_and_from_a_limit_on_the_ranges_are_counted():
    assert [format_ranks(ranks) for ranks in ([3], [2, 5], [0, 1, 2, 7], [(0, 2), (3, 9)])] == [
        "rank 3",
        "ranks 2, 5",
        "ranks 0-2, 7",
        "ranks 0-9",
    ]
    assert format_ranges(range(0, 40, 2)).endswith(", 28, 30 and 4 more groups")
    assert format_ranges([1, 3, 4, 8], max_ranges=2) == "1, 3-4 and 1 more group"


def test_gaps_are_found_among_numbers_in_any_order_and_none_of_nothing():
    assert find_gaps([7, 3, 3, 0, 12], 10) == [(1, 2), (4, 6), (8, 9)]
    assert find_gaps([], 10**12) == [(0, 10**12 - 1)]
    assert find_gaps([0, 1], 2) == find_gaps([5], 0) == find_gaps([], -1) == []


@pytest.mark.parametrize(
    ("status", "stderr", "reason"),
    [
        (1, "error: first\nwarning: other\nerror: the disk is full\n", "the disk is full"),
        (-9, "half a line", "its process was killed (SIGKILL), as the system does when memory is exhausted"),
        (-15, "", "its process was ended by signal 15"),
        (1, "Traceback (most recent call last):\n  ...\nValueError: no rank\n\n", "ValueError: no rank"),
        (3, "", "its process ended with exit code 3"),
    ],
)
def test_the_failure_of_a_process_is_described_by_what_is_known(status, stderr, reason):
    assert describe_failure(status, stderr) == reason
