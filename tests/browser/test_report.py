"""The page that `kinetoscope report` writes, in a real browser."""

import pytest

from trainsim import Fault, Settings


@pytest.fixture(scope="module")
def report(analyze_sources):
    """The report of a run whose data loader is slow."""
    return analyze_sources(Settings(has_stacks=True, faults=(Fault(kind="slow_loader", cost_ns=3_000_000),)))


def test_the_first_thing_to_see_is_the_worst_finding(report, page, open_file):
    open_file(report)

    first = page.locator("main .findings li").first
    assert "Input-bound" in first.inner_text()


def test_a_file_that_was_cut_says_that_it_is_damaged(report, page, open_file, tmp_path):
    cut = tmp_path / "cut.html"
    text = report.read_text()
    cut.write_text(text.replace(text[text.index('id="page-data">') + 20 :][:4000], ""))

    open_file(cut)

    assert "damaged" in page.get_by_role("alert").inner_text()


def test_the_page_may_run_its_own_script_and_nothing_else(report, browser):
    page = browser.new_page()
    page.goto(report.as_uri())
    page.wait_for_selector("main")

    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    refused = page.evaluate("""() => new Promise((done) => {
        document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));
        const script = document.createElement("script");
        script.src = "data:text/javascript,window.ran = 1";
        document.body.append(script);
    })""")
    page.close()
    assert refused == "script-src-elem"
