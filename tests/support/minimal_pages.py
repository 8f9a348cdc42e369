"""Pages of a few rows for tests of one view, names with markup, and checks by axe."""

import time
from pathlib import Path
from types import SimpleNamespace

from axe_playwright_python.base import AXE_SCRIPT

from kinetoscope.analysis.run_report import TABLES
from kinetoscope.pages.html_file import render_page
from kinetoscope.pages.page_data import PageData
from kinetoscope.report.calls import build_call_tables
from kinetoscope.report.page.overview import compute_call_totals

MAX_WAIT_S = 60
RUN = {"name": "a run", "title": "a run", "world_size": 1, "ranks": [0], "hosts": [], "num_steps": 0, "notes": []}
RUN |= {"flops_per_step": None, "flops_per_s": None, "mfu": None, "mfu_coverage": None, "state": "finished"}
RUN |= {
    "step_ns": None,
    "bound_by": "unknown",
    "parts": None,
    "samples_per_s": None,
    "tokens_per_s": None,
    "all_steps": None,
    "slow_steps": [],
    "missing": [],
}
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "\u202egnirts desrever",
    "=HYPERLINK(1)",
    "long" * 2500,
]


def write_page(path: Path, data: dict | None = None, run: dict | None = None, **tables) -> Path:
    """Return a page with these rows in the tables of its report, facts of the ``run``, and other ``data``."""
    report = {table: tables.get(table, []) for table in TABLES} | {"run": RUN | (run or {})}
    calls = [[SimpleNamespace(**row) for row in report[table]] for table in ("operators", "kernels")]
    data = {"call_totals": compute_call_totals(*calls), "call_tables": build_call_tables(*calls)} | (data or {})
    path.write_text(render_page(PageData(version="1", title="a page", report=report, **data)), encoding="utf-8")
    return path


def reload_until(page, condition: str) -> None:
    """Reloads a page until what it has kept in the browser is there, which may be some milliseconds later."""
    until = time.monotonic() + MAX_WAIT_S
    page.reload()
    while not page.evaluate(condition):
        assert time.monotonic() < until, condition
        page.reload()


def axe_violations(page, **options) -> list[dict]:
    """Return axe's violations on a page. Its script stays in the page: reading it takes 70 ms of CPU time."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    run = "options => axe.run(options).then((results) => results.violations)"
    return page.evaluate(run, {"resultTypes": ["violations"], **options})


def serious_faults(page, **options) -> list[tuple[str, list[str]]]:
    """Return the rules that axe finds broken on a page as it is, if that is serious, and where."""
    serious = [fault for fault in axe_violations(page, **options) if fault["impact"] in ("serious", "critical")]
    return [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in serious]


def assert_accessible(page) -> None:
    """Axe finds nothing serious, light and dark. Only colours are other ones in the dark."""
    for scheme, rules in (("light", {}), ("dark", {"runOnly": ["cat.color"]})):
        page.emulate_media(color_scheme=scheme)
        assert serious_faults(page, **rules) == [], scheme
