"""The chapters on kinds of findings, as a page has them."""

import pytest

from kinetoscope.analysis.analyze import analyze
from kinetoscope.analysis.findings.chapters import chapters
from kinetoscope.report.chapters import html_of_chapter
from kinetoscope.report.sections.build import build_page
from simulated_training import Fault, Settings, simulate


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    late = Fault(kind="late_host", ranks=(2,), cost_ns=3_000_000, every=3)
    simulate(Settings(num_ranks=4, num_steps=12, faults=(late,))).write(folder)
    return analyze(folder, cache=False)


def test_a_page_has_the_chapter_of_each_of_its_findings_and_no_other(report):
    page = build_page(report, "1")
    assert "straggler" in page.chapters
    assert page.chapters.keys() == {finding.kind for finding in report.findings}
    assert "<p>Other ranks wait for one rank, or for several" in page.chapters["straggler"]


@pytest.mark.parametrize("kind", chapters())
def test_the_html_of_a_chapter_has_no_links_and_no_markdown(kind):
    html = html_of_chapter(chapters()[kind])
    assert "<p>" in html
    assert not any(mark in html for mark in ("<a ", "`", "](", "|---", "<script"))


def test_a_table_in_a_chapter_is_a_table_on_the_page():
    assert "<table>" in html_of_chapter(chapters()["blocked"])
