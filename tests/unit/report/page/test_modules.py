"""Torch modules of a page: their tree, and the calls and spans that belong to each."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from kinetoscope.formats.device_events import DEVICE_CATEGORIES
from kinetoscope.pages.html_file import render_page
from support.page_data import page_of, page_text, read_column
from trainsim import Settings, simulate

TITLES = ["Model", "layers.0-4 (5x)", "(outside of modules)", "(gradient accumulation)", "(optimizer)"]


def simulated_page(folder, **settings):
    simulate(Settings(num_ranks=2, num_steps=6, **settings)).write(folder)
    return page_of(*sorted(folder.rglob("*.json")))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return simulated_page(tmp_path_factory.mktemp("modules"), has_modules=True)


def calls_of(page):
    """Return the sums of calls as rows, with texts."""
    calls = page.modules.calls
    columns = {name: read_column(column) for name, column in vars(calls).items() if name != "texts"}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [row | {"kind": calls.texts[row["kinds"]], "name": calls.texts[row["names"]]} for row in rows]


def spans_of(page):
    """Return the kind of track, the name, the category and the title of the module of each span."""
    spans, texts = page.timeline.spans, page.timeline.texts
    names, categories, modules = (read_column(column) for column in (spans.names, spans.categories, spans.modules))
    kinds = [
        track.kind
        for track in page.timeline.tracks
        for first, last in pairwise(track.row_begins)
        for _ in range(first, last)
    ]
    titles = ["", *TITLES]
    return [
        (kind, texts[name], texts[category], titles[module])
        for kind, name, category, module in zip(kinds, names, categories, modules, strict=True)
    ]


def test_rows_are_the_tree_with_repeated_blocks_folded_and_the_time_outside(page):
    assert [row.title for row in page.modules.rows] == TITLES
    assert [row.level for row in page.modules.rows] == [0, 1, 0, 0, 0]
    assert page.modules.rows[1].names == [f"Model.layers.{number}" for number in range(5)]
    assert (page.modules.side, page.modules.step_ns) == ("GPU", page.report["run"]["step_ns"])


def test_the_time_of_a_row_is_that_of_its_parts_and_its_share_that_of_the_step(page):
    for row in page.modules.rows:
        parts = (row.forward_ns, row.backward_ns, row.recompute_ns, row.communication_ns)
        assert row.time_ns == pytest.approx(sum(part or 0 for part in parts))
        assert row.share == pytest.approx(row.time_ns / page.modules.step_ns)


def test_calls_within_the_rows_add_up_to_all_operators_and_kernels(page):
    calls, totals = calls_of(page), {total.kind: total for total in page.call_totals}
    operators = [row for row in calls if row["kind"] == "operator"]
    kernels = [row for row in calls if row["kind"] != "operator"]
    for rows, total in ((operators, totals["operators"]), (kernels, totals["kernels"])):
        assert sum(row["num_calls"] for row in rows) == total.num_calls
        assert sum(row["self_ns"] for row in rows) == total.self_ns
        assert sum(row["total_ns"] for row in rows) == total.total_ns


def test_the_time_of_a_row_is_that_of_its_kernels(page):
    num_steps = len(page.report["steps"])
    kernels = [row for row in calls_of(page) if row["kind"] != "operator"]
    layers_ns = sum(row["total_ns"] for row in kernels if row["modules"] == 1)
    assert page.modules.rows[1].time_ns == pytest.approx(layers_ns / num_steps)


def test_each_kernel_of_the_timeline_belongs_to_the_row_that_counts_it(page):
    shown = Counter((name, title) for _, name, category, title in spans_of(page) if category in DEVICE_CATEGORIES)
    counted = Counter()
    for row in calls_of(page):
        if row["kind"] != "operator":
            counted[row["name"], TITLES[row["modules"]]] += row["num_calls"]
    assert shown == counted


def test_calls_of_modules_have_a_track_of_their_own(page):
    calls = [span for span in spans_of(page) if span[2] == "module"]
    assert {kind for kind, *_ in calls} == {"modules"}
    assert {kind for kind, _, category, _ in spans_of(page) if category != "module"} == {"steps", "thread", "stream"}
    assert {(name, title) for _, name, _, title in calls} == {
        ("Model", "Model"),
        *((f"Model.layers.{number}", "layers.0-4 (5x)") for number in range(5)),
    }


def test_a_page_without_calls_of_modules_has_no_key_for_them(tmp_path):
    assert '"modules"' not in json.dumps(page_text(render_page(simulated_page(tmp_path))))


def test_a_page_has_the_tree_instead_of_the_rows_of_each_rank(page):
    assert "modules" not in page.report
    assert page_text(render_page(page))["modules"]["rows"][0]["names"] == ["Model"]
