"""Metadata of the documentation's pages, built by Sphinx from a small folder with the settings of docs/conf.py."""

import re
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("furo")
pytest.importorskip("myst_parser")
from sphinx.testing.util import SphinxTestApp

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "index.md": "# Welcome\n\n![A report](images/report.png)\n\nFind **slow** steps where `a < b` & why.\n",
    "guide.md": "# Guide\n\n> A quote.\n\n" + "Long words of a first paragraph. " * 20 + "\n",
    "generated/native.md": "# Copied\n\nA copy of a file elsewhere.\n",
    "generated/commands/run.md": "# run\n\nRun a command.\n",
    "generated/examples/train.md": "# train.py\n\nTrain.\n",
}
EXTENSIONS = ["myst_parser", "repository_links", "page_metadata"]


@pytest.fixture
def build(tmp_path, monkeypatch):
    """Return a function that builds the pages with some settings and returns their HTML by name."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(DOCS / "extensions")])
    for name, text in PAGES.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    shutil.copytree(DOCS / "images", tmp_path / "docs" / "images")
    conf = (DOCS / "conf.py").read_text(encoding="utf-8").replace("__file__", repr(str(DOCS / "conf.py")))
    (tmp_path / "docs" / "conf.py").write_text(conf, encoding="utf-8")

    def built(**settings):
        app = SphinxTestApp("html", tmp_path / "docs", confoverrides={"extensions": EXTENSIONS, **settings})
        app.build()
        app.cleanup()
        return {page: (Path(app.outdir) / page).with_suffix(".html").read_text(encoding="utf-8") for page in PAGES}

    return built


def content_of(html, name):
    found = re.search(rf'<meta (?:name|property)="{name}" content="([^"]*)">', html)
    return found and found[1]


def test_a_page_has_an_icon_a_description_and_opengraph_without_an_address(build):
    pages = build()
    assert content_of(pages["index.md"], "description") == "Find slow steps where a &lt; b &amp; why."
    assert content_of(pages["index.md"], "og:description") == content_of(pages["index.md"], "description")
    assert content_of(pages["index.md"], "og:title") == "Welcome"
    assert content_of(pages["guide.md"], "description").startswith("Long words of a first paragraph.")
    assert len(content_of(pages["guide.md"], "description")) <= 200
    for html in pages.values():
        assert re.search(r'<link rel="(shortcut )?icon" href="[^"]*favicon.svg', html)
        assert content_of(html, "og:url") is content_of(html, "og:image") is None
        assert 'rel="canonical"' not in html
        assert 'rel="edit"' not in html


def test_two_settings_give_pages_an_address_and_edit_links_to_their_own_source(build):
    pages = build(html_baseurl="https://host.example/docs/", edit_url="https://host.example/edit/main/")
    assert content_of(pages["guide.md"], "og:url") == "https://host.example/docs/guide.html"
    assert content_of(pages["index.md"], "og:image") == "https://host.example/docs/_images/report.png"
    edits = {page: set(re.findall(r'href="([^"]*)" rel="edit"', html)) for page, html in pages.items()}
    assert edits == {
        "index.md": {"https://host.example/edit/main/docs/index.md"},
        "guide.md": {"https://host.example/edit/main/docs/guide.md"},
        "generated/native.md": {"https://host.example/edit/main/src/native/README.md"},
        "generated/commands/run.md": set(),
        "generated/examples/train.md": {"https://host.example/edit/main/examples/train.py"},
    }
