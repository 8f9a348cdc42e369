"""Views use their screen: no band of rows or columns of over a third of it has the background's colour only."""

from kinetoscope.cli import main
from support.tools.uniform_bands import find_wide_bands, measure_bands
from trainsim import Fault, Settings, simulate

WIDE = {"sizes": ((1440, 900),), "schemes": ("light",)}


def test_no_view_has_a_wide_uniform_band(browser, tmp_path):
    fault = Fault(kind="float32", cost_ns=900_000)
    for name, faults in (("before", ()), ("after", (fault,))):
        simulate(Settings(num_ranks=2, num_steps=8, has_modules=True, faults=faults)).write(tmp_path / name)
    report = tmp_path / "report.html"
    runs = [str(tmp_path / name) for name in ("before", "after")]
    assert main(["report", "--no-cache", *runs, "-o", str(report)]) == 0
    screens = list(measure_bands(browser, report.as_uri(), **WIDE))
    assert {screen.view for screen in screens} >= {"overview", "timeline", "ranks", "modules", "kernels", "compare"}
    assert find_wide_bands(iter(screens)) == []


def test_an_empty_screen_is_found(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        "<header><nav><a href='#view=overview'>Overview</a></nav></header><main data-view=overview>Nothing</main>"
    )
    (found,) = find_wide_bands(measure_bands(browser, page.as_uri(), sizes=((400, 800),), schemes=("light",)))
    assert found.startswith("overview at 400 px, light, from 0 px down: 9")
