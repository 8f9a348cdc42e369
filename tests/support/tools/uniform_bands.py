"""Uniform bands of pages: ``python -m support.tools.uniform_bands REPORT.html FOLDER_OF_RUNS ...`` from ``tests``.

A view wastes the screen where a band of rows or columns of over a third of it has the background's colour only. The
views of a report, or the pages of ``kinetoscope view`` on a folder, are opened in light and dark at three widths. Each
screenshot is cut into screens as a reader scrolls to them, and each screen is measured.
"""

import argparse
import base64
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.chromium import running_chromium
from support.view_server import served

SIZES = ((1440, 900), (1024, 768), (400, 800))
SCHEMES = ("light", "dark")
MAX_SHARE = 1 / 3
MAX_WAIT_MS = 300_000

_MEASURE = """async ([picture, height, main]) => {
  const bitmap = await createImageBitmap(await (await fetch(picture)).blob());
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, bitmap.width, bitmap.height).data.buffer);
  const counts = new Map();
  for (let at = 0; at < pixels.length; at += 7) counts.set(pixels[at], (counts.get(pixels[at]) ?? 0) + 1);
  const ground = [...counts].sort((one, other) => other[1] - one[1])[0][0];
  const longest = (length, isUniform) => {
    let [best, run] = [0, 0];
    for (let at = 0; at < length; at++) best = Math.max(best, (run = isUniform(at) ? run + 1 : 0));
    return best / length;
  };
  const isGround = (x, y) => pixels[y * bitmap.width + x] === ground;
  const tops = [];
  for (let top = 0; top + height < bitmap.height; top += height) tops.push(top);
  tops.push(Math.max(0, bitmap.height - height));
  return tops.map((top) => {
    const rows = Math.min(height, bitmap.height - top);
    const isRow = (y) => {
      for (let x = 0; x < bitmap.width; x++) if (!isGround(x, y)) return false;
      return true;
    };
    const isColumn = (x) => {
      for (let y = Math.max(top, main); y < top + rows; y++) if (!isGround(x, y)) return false;
      return true;
    };
    return { top, rows: longest(rows, (y) => isRow(top + y)), columns: longest(bitmap.width, isColumn) };
  });
}"""


@dataclass(frozen=True)
class Screen:
    """One screen of a view or page, ``top`` pixels down, with the shares of its longest uniform bands."""

    view: str
    size: tuple[int, int]
    scheme: str
    top: int
    rows: float
    columns: float

    def __str__(self) -> str:
        where = f"{self.view} at {self.size[0]} px, {self.scheme}, from {self.top} px down"
        return f"{where}: {self.rows:.0%} of rows, {self.columns:.0%} of columns"


def measure_bands(browser: Any, address: str, sizes=SIZES, schemes=SCHEMES, link: str = "") -> Iterator[Screen]:
    """Measure all screens of all views of the report at an address, or of the only view of another page.

    Pages of `kinetoscope view` need its ``link`` first.
    """
    measuring = browser.new_page()
    for size in sizes:
        for scheme in schemes:
            page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
            for place in filter(None, (link, address)):
                page.goto(place)
            page.wait_for_selector("main")
            for view in _find_views(page) or [""]:
                for screen in _measure_view(measuring, page, view, size[1]):
                    yield Screen(view or page.title(), size, scheme, **screen)
            page.close()
    measuring.close()


def find_run_pages(browser: Any, link: str) -> list[str]:
    """Return the addresses of the list of runs and of each run, once the runs of `kinetoscope view` are analysed."""
    page = browser.new_page()
    page.goto(link)
    page.wait_for_selector(".run-name a")
    page.locator("header").filter(has_not_text="being analysed").wait_for(timeout=MAX_WAIT_MS)
    pages = [page.url, *page.locator(".run-name a").evaluate_all("(links) => links.map((link) => link.href)")]
    page.close()
    return pages


def _find_views(page: Any) -> list[str]:
    links = page.locator("header nav a").evaluate_all("(links) => links.map((link) => link.hash)")
    return [link.removeprefix("#view=").split("&")[0] for link in links if link]


def _measure_view(measuring: Any, page: Any, view: str, height: int) -> list[dict[str, Any]]:
    if view:
        page.evaluate(f"location.hash = 'view={view}'")
        page.wait_for_selector(f"main[data-view={view}]")
    page.wait_for_timeout(300)  # canvases are drawn in the frames after
    picture = page.screenshot(full_page=True, animations="disabled")
    main = round(page.locator("main").bounding_box()["y"])  # no column is uniform in the menu above
    return measuring.evaluate(_MEASURE, [f"data:image/png;base64,{base64.b64encode(picture).decode()}", height, main])


def find_wide_bands(screens: Iterator[Screen]) -> list[str]:
    """Return the screens with a band above the limit."""
    return [str(screen) for screen in screens if max(screen.rows, screen.columns) > MAX_SHARE]


def main() -> None:
    """Print the screens with wide bands of the named reports and folders of runs, or all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--json", action="store_true", help="print all screens as JSON")
    arguments = parser.parse_args()
    found = []
    with running_chromium() as browser:
        for page in arguments.pages:
            screens = list(_measure_pages(browser, page))
            if arguments.json:
                print(json.dumps([vars(screen) for screen in screens]))
                continue
            bands = find_wide_bands(iter(screens))
            found += bands
            print(f"{page.name}: {len(screens)} screens, {len(bands)} with a wide uniform band")
            print(*(f"  {band}" for band in bands), sep="\n", end="\n" if bands else "")
    if found:
        raise SystemExit(1)


def _measure_pages(browser: Any, path: Path) -> Iterator[Screen]:
    """Measure a report, or the pages of `kinetoscope view` on a folder."""
    if path.is_file():
        yield from measure_bands(browser, path.resolve().as_uri())
        return
    with tempfile.TemporaryDirectory() as directory, served(path, works_in=Path(directory)) as server:
        for address in find_run_pages(browser, server.link):
            yield from measure_bands(browser, address, link=server.link)


if __name__ == "__main__":
    main()
