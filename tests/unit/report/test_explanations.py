"""The explanations of findings, as a page has them."""

import pytest

from kinetoscope.analysis.analyze import analyze
from kinetoscope.analysis.findings.explanations import explanations
from kinetoscope.report.explanations import render_explanation_html
from kinetoscope.report.page.build import build_page
from trainsim import Fault, Settings, simulate


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    late = Fault(kind="late_host", ranks=(2,), cost_ns=3_000_000, every=3)
    simulate(Settings(num_ranks=4, num_steps=12, faults=(late,))).write(folder)
    return analyze(folder, cache=False)


def test_a_page_has_the_explanation_of_each_of_its_findings_and_no_other(report):
    page = build_page(report, "1")
    assert "straggler" in page.explanations
    assert page.explanations.keys() == {finding.kind for finding in report.findings}
    assert "Other ranks wait for one rank, or for several" in page.explanations["straggler"]


@pytest.mark.parametrize("kind", explanations())
def test_the_html_of_an_explanation_has_no_links_and_no_markdown(kind):
    html = render_explanation_html(explanations()[kind].text)
    assert "<p>" in html
    assert not any(mark in html for mark in ("<a ", "`", "](", "|---", "<script"))


@pytest.mark.parametrize("kind", explanations())
def test_headings_of_an_explanation_follow_the_title_of_its_finding(kind):
    """The title of a finding on the page is an ``h3``."""
    html = render_explanation_html(explanations()[kind].text)
    assert [level for level in "123456" if f"<h{level}>" in html] in (["4"], ["4", "5"])


def test_a_table_in_an_explanation_is_a_table_on_the_page():
    assert "<table>" in render_explanation_html(explanations()["blocked"].text)
