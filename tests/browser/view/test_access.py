"""Who can read the pages of `kinetoscope view`: links, other origins, and the reports of others."""

from support.view_pages import REPORT_MARK, WAIT_MS, pages_of
from support.view_server import served


def test_the_link_works_from_a_file_and_from_another_page_and_leaves_no_token_behind(runs, context, tmp_path):
    tab = context.new_page()
    with served(runs) as server, pages_of({"/": "<p>another page"}) as elsewhere:
        plain = server.link.partition("?")[0]
        (tmp_path / "open.html").write_text(f'<meta http-equiv="refresh" content="0; url={server.link}">')
        tab.goto((tmp_path / "open.html").as_uri())
        tab.get_by_role("heading", name="Runs in runs").wait_for(timeout=WAIT_MS)
        assert tab.url == plain
        assert tab.evaluate("document.cookie") == ""
        tab.goto(elsewhere)
        tab.evaluate(f"location.href = '{plain}run/digits'")
        tab.get_by_role("heading", name="digits").wait_for(timeout=WAIT_MS)
        tab.go_back()
        tab.go_back()
        assert "token" not in tab.url


def test_visitor_without_the_link_is_refused_even_from_another_page(runs, context):
    tab = context.new_page()
    with served(runs) as server, pages_of({"/": "<p>another page"}) as elsewhere:
        tab.goto(elsewhere)
        tab.evaluate(f"location.href = '{server.link.partition('?')[0]}'")
        tab.get_by_role("heading", name="This needs the link").wait_for(timeout=WAIT_MS)


def test_two_servers_in_one_browser_do_not_disturb_each_other(runs, tab):
    with served(runs) as one, served(runs / "digits") as two:
        for server in (one, two):
            tab.goto(server.link)
        for server, heading in ((one, "Runs in runs"), (two, "digits")):
            tab.goto(server.link.partition("?")[0])
            tab.get_by_role("heading", name=heading).wait_for(timeout=WAIT_MS)


def test_names_that_look_like_a_program_stay_text(runs, tab):
    name = "<script>document.title='run'</script>\u202e<img src=x onerror=document.title='run'>"
    (runs / "mean" / f"{name.replace('/', '-')}").mkdir(parents=True)
    (runs / "mean" / f"{name.replace('/', '-')}" / "a.json").write_text("{}")
    with served(runs) as server:
        tab.goto(server.link)
        tab.locator(".run-name a", has_text="onerror").click()
        assert "onerror=document" in tab.get_by_role("heading", level=1).inner_text()
        assert tab.title() != "run"
        assert not tab.locator("img").count()


SPYING = """<p id="said">nothing</p><script>
    const said = [];
    const attempt = async (name, act) => {
        try { said.push(`${name}: ${await act()}`) } catch { said.push(`${name}: refused`) }
    };
    (async () => {
        await attempt("cookie", () => document.cookie);
        await attempt("storage", () => localStorage.length);
        await attempt("list", async () => (await fetch("/")).status);
        await attempt("trace", async () => (await fetch("/trace/digits/traces/merged_trace.json")).status);
        await attempt("image", () => new Promise((good, bad) => {
            const image = new Image(); image.onload = good; image.onerror = bad; image.src = "/";
        }));
        document.getElementById("said").textContent = said.join(", ");
    })();
</script>"""


def test_a_strangers_report_runs_but_reads_and_reaches_nothing(runs, context):
    tab = context.new_page()
    (runs / "digits" / "report.html").write_text(REPORT_MARK + SPYING)
    with served(runs) as server:
        tab.goto(server.link)
        tab.get_by_role("link", name="report on digits").click()
        tab.get_by_text("cookie:").wait_for(timeout=WAIT_MS)
        results = tab.inner_text("#said")
    assert results == "cookie: refused, storage: refused, list: refused, trace: refused, image: refused"
