"""The views of operators and kernels, in a real browser: sorted, filtered, grouped, copied, chosen."""

import pytest

import kinetoscope
from kinetoscope.cli import main
from support.minimal_pages import HOSTILE, assert_accessible, write_page
from trainsim import Settings, simulate

UNKNOWN = "\u2013"


def calls(name, num_calls, total_ns, **others):
    others = dict.fromkeys(("flops", "flops_per_s", "mfu")) | others
    times = dict.fromkeys(("p50_ns", "p95_ns", "max_ns"), total_ns // num_calls) | {"mean_ns": total_ns / num_calls}
    return {"name": name, "num_calls": num_calls, "total_ns": total_ns, "self_ns": total_ns, **times, **others}


def operator(name, num_calls, total_ns, shapes=None, device_ns=None, **computed):
    return calls(name, num_calls, total_ns, shapes=shapes, device_ns=device_ns, **computed)


def names(page):
    return page.locator("tbody td:first-child").all_inner_texts()


def test_operators_are_sorted_filtered_and_grouped_and_a_link_remembers_how(page, open_file, tmp_path):
    rows = [
        operator("aten::mm", 4, 4_000_000, shapes="[[2, 3], [3, 4]]", device_ns=9_000_000),
        operator("aten::mm", 1, 2_000_000, shapes="[[8, 8], [8, 8]]", device_ns=1_000_000),
        operator("aten::add", 100, 5_000_000, shapes="[[2, 4]]", device_ns=0),
    ]
    open_file(write_page(tmp_path / "page.html", operators=rows), "#view=operators")

    assert names(page) == ["aten::mm", "aten::add"]
    assert "11.0 ms" in page.locator("main h2").inner_text()
    grouped = page.locator("tbody tr").first.inner_text().split("\t")
    assert [cell.strip() for cell in grouped] == [
        *("aten::mm", "2 different", "5", "6.00 ms", "6.00 ms", "1.20 ms", UNKNOWN, UNKNOWN, "2.00 ms", "10.0 ms")
    ]
    page.get_by_label("Group by").select_option("Name and shapes")
    page.get_by_role("button", name="Calls").click()
    assert names(page) == ["aten::add", "aten::mm", "aten::mm"]
    page.get_by_role("searchbox").fill("mm 8")
    page.reload()
    assert names(page) == ["aten::mm"]
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Calls")
    assert "1 of 3 rows" in page.get_by_role("status").inner_text()
    assert_accessible(page)


def test_operators_have_rates_and_the_share_of_the_peak_where_these_are_known(page, open_file, tmp_path):
    rows = [
        operator("aten::mm", 1, 4_000_000, flops=6e9, flops_per_s=3e12, mfu=0.3),
        operator("aten::mm", 1, 2_000_000, flops=6e9, flops_per_s=1e12, mfu=0.1),
        operator("aten::add", 1, 1_000_000),
    ]
    open_file(write_page(tmp_path / "page.html", operators=rows), "#view=operators")

    cells = [row.split("\t")[-3:] for row in page.locator("tbody tr").all_inner_texts()]
    assert [[cell.strip() for cell in row] for row in cells] == [
        ["12.0 GFLOP", "1.50 TFLOP/s", "15 %"],  # by the time of each: 2 and 6 ms
        [UNKNOWN] * 3,
    ]
    assert_accessible(page)


def test_hostile_names_stay_text_and_no_formula_is_copied(page, open_file, tmp_path):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    rows = [operator(name, 1, 1000 - at) for at, name in enumerate(HOSTILE)]
    open_file(write_page(tmp_path / "page.html", operators=rows), "#view=operators")

    assert names(page)[:3] == HOSTILE[:3]
    assert "…" in names(page)[3]
    page.get_by_role("button", name="Copy as TSV").click()
    page.get_by_text("Copied: 5 lines").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "\n'=HYPERLINK(1)\t1\t" in copied
    assert "Self time (ns)" in copied.split("\n")[0]
    assert HOSTILE[3] in copied
    page.get_by_role("button", name="longlong").click()
    assert page.locator(".chosen bdi").first.inner_text() == HOSTILE[3]
    assert page.locator("img").count() == 0


def test_text_is_shown_for_copying_if_the_browser_refuses_to_copy(page, open_file, tmp_path):
    open_file(write_page(tmp_path / "page.html", operators=[operator("aten::mm", 1, 1000)]), "#view=operators")
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')) }")

    page.get_by_role("button", name="Copy as TSV").click()

    assert "aten::mm\t1\t1000" in page.get_by_label("does not let this page copy").input_value()


def test_kernels_have_kinds_and_rates_and_are_grouped_without_their_types(page, open_file, tmp_path):
    kernels = [
        calls("void fill<float>(int)", 2, 2_000_000, kind="compute", bytes=None, flops=4e9, flops_per_s=2e12, mfu=0.13),
        calls("void fill<half>(int)", 1, 1_000_000, kind="compute", bytes=None),
        calls("Memcpy HtoD", 1, 1_500_000, kind="copy", bytes=3 * 2**20),
    ]
    open_file(write_page(tmp_path / "page.html", kernels=kernels), "#view=kernels")

    assert names(page) == ["fill<float>", "Memcpy HtoD", "fill<half>"]
    assert "3.00 ms compute, 1.50 ms copy" in page.locator("main h2").inner_text()
    first = page.locator("tbody tr").first.inner_text()
    assert "4.00 GFLOP" in first
    assert "2.00 TFLOP/s" in first
    assert "13 %" in first
    assert "1.95 GiB/s" in page.locator("tbody tr").nth(1).inner_text()
    page.get_by_label("Group by").select_option("Name without types")
    assert names(page) == ["fill", "Memcpy HtoD"]
    assert_accessible(page)


def test_name_of_several_shapes_has_a_median_and_a_line_on_tensor_core_use(page, open_file, tmp_path):
    settings = Settings(num_ranks=1, num_steps=4, has_shapes=True)
    simulate(settings).write(tmp_path)
    assert main(["report", "--no-cache", str(tmp_path)]) == 0
    report = kinetoscope.analyze(tmp_path, cache=False)

    open_file(tmp_path / "report.html", "#view=operators")
    several = page.get_by_role("row").filter(has_text="different")
    assert several.count() > 0
    assert UNKNOWN not in [cell.strip() for row in several.all_inner_texts() for cell in row.split("\t")[5:7]]
    open_file(tmp_path / "report.html", "#view=kernels")
    share = f"{100 * report.run['tensor_core_share']:.1f} %"
    page.get_by_text(f"Tensor cores: kernels that use them take {share} of the time").wait_for()


def test_five_thousand_operators_are_shown_in_part_and_found_all(page, open_file, tmp_path):
    rows = [operator(f"aten::op_{number}", 1, number + 1) for number in range(5000)]
    open_file(write_page(tmp_path / "page.html", operators=rows), "#view=operators")

    assert len(names(page)) == 200
    page.get_by_role("button", name="Show more (4,800 operators hidden)").click()
    assert len(names(page)) == 1000
    page.get_by_role("searchbox").fill("op_17")
    assert names(page)[0] == "aten::op_1799"


@pytest.mark.parametrize(("view", "message"), [("operators", "No operators"), ("kernels", "No kernels")])
def test_a_run_without_rows_says_how_to_record_them(page, open_file, tmp_path, view, message):
    open_file(write_page(tmp_path / "page.html"), f"#view={view}")

    assert message in page.locator(".empty").inner_text()
    assert "kinetoscope.profile(" in page.locator(".empty").inner_text()


def test_operators_and_kernels_are_listed_by_their_calling_line(page, open_file, tmp_path):
    simulate(Settings(has_stacks=True, has_device=True, num_ranks=1, num_steps=4)).write(tmp_path)
    assert main(["report", "--no-cache", str(tmp_path)]) == 0

    for view in ("operators", "kernels"):
        open_file(tmp_path / "report.html", f"#view={view}&by=Name+and+line")
        rows = [row.split("\t") for row in page.locator("tbody tr").all_inner_texts()]
        assert any("train.py:" in row[1] for row in rows)
    assert_accessible(page)
