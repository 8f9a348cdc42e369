"""The page shows the numbers of its data, and works out none: not even where these contradict each other.

All times, sizes, rates and shares of a page are replaced by ones whose digits are a prime number. A sum, a mean or a
share that the page worked out itself would be another number.
"""

import re
from dataclasses import fields, is_dataclass, replace
from itertools import cycle
from math import floor, isqrt, log10

import pytest

from kinetoscope.pages.html_file import render_page
from kinetoscope.pages.page_data import Column, StepBreakdowns
from kinetoscope.report.page.build import build_page
from trainsim import Settings
from trainsim.analyses import analyze_cached

_SHOWN = "main td, main dd, main caption, main .stack-length, main .step-ends + p"
_NUMBER = re.compile(r"(-?[\d.,]+)\s(ns|µs|ms|s|min|%|B|[KMGT]iB|[kMGTP]?FLOP)\b")
_UNTOUCHED = {"begin_ns", "duration_ns", "starts_ns", "ends_ns", "origin_ns", "threshold"}


def _is_prime(number):
    return number > 1 and all(number % factor for factor in range(2, isqrt(number) + 1))


_OF_THREE_DIGITS = cycle([number for number in range(101, 1000) if _is_prime(number)])
_OF_TWO_DIGITS = cycle([number for number in range(11, 100) if _is_prime(number)])


def _doctored(value, name=""):
    """Return a part of a page, with other numbers: all times, sizes, rates and shares, by the names of their fields."""
    if name == "lengths":
        return Column.of(next(_OF_THREE_DIGITS) * 1000 for _ in range(len(value)))
    if isinstance(value, StepBreakdowns):
        return replace(
            value,
            times=_times_like(value.times),
            work=_times_like(value.work),
            **{
                side: {part: _times_like(column) for part, column in getattr(value, side).items()}
                for side in ("host", "device")
            },
        )
    if name in _UNTOUCHED or isinstance(value, (Column, str)):
        return value
    if isinstance(value, dict):
        return {key: _doctored(part, name if name == "by_category" else key) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_doctored(part, name) for part in value]
    if is_dataclass(value):
        return replace(value, **{one.name: _doctored(getattr(value, one.name), one.name) for one in fields(value)})
    if not value or isinstance(value, bool):
        return value
    if name in ("mfu", "mfu_coverage", "costs", "savings", "shares") or "share" in name:
        return next(_OF_TWO_DIGITS) / 100
    if "bytes" in name or name == "by_category":
        return next(_OF_THREE_DIGITS) * 1024
    if name.endswith(("_ns", "_ns_per_step", "_per_s")) or name in ("flops", "flops_per_step"):
        return next(_OF_THREE_DIGITS) * 10 ** max(0, floor(log10(abs(value))) - 2)
    return value


def _times_like(column):
    """Return known times of steps, which are stored plus 1."""
    return Column.of(next(_OF_THREE_DIGITS) * 10_000 + 1 for _ in range(len(column)))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    report = analyze_cached(Settings(num_ranks=2, num_steps=4, has_shapes=True, has_memory=True))[1]
    file = tmp_path_factory.mktemp("page") / "report.html"
    page = _doctored(build_page(report, "0"))
    file.write_text(render_page(page), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("view", "fewest"),
    [
        ("overview", 20),
        ("ranks", 6),
        ("communication", 12),
        ("operators", 12),
        ("operators&by=Name and shapes", 12),
        ("kernels", 12),
        ("kernels&by=Name without types", 12),
        ("kernels&by=Kind", 6),
        ("memory", 2),
    ],
)
def test_each_number_of_a_view_is_one_of_the_data(page, open_file, file, view, fewest):
    open_file(file, f"#view={view}")
    page.locator("main[data-view]").wait_for()

    texts = page.locator(_SHOWN).all_inner_texts()
    found = [(match[0], text) for text in texts for match in _NUMBER.finditer(text)]
    assert len(found) >= fewest
    assert [pair for pair in found if not _is_shown(pair[0])] == []


def _is_shown(number):
    digits = int(re.sub(r"\D", "", number))
    return digits == 0 or _is_prime(digits)
