"""No address leads out of the folder, whatever it is made of."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.server.run_lists import RunLists
from kinetoscope.server.site import Site

REPORT = '<meta name="generator" content="kinetoscope 0.1.0" />'
SLASHES = ["/", "//", "%2f", "%5c", "\\", "..", "%2e%2e", "."]
ODD = ["%00", "\0", "%0a", "%ff", "%", "?", "#", ";", "ü", "\udcff", "x" * 300]
NAMES = [
    "trace",
    "run",
    "digits",
    "rank0.json",
    "report.html",
    "secret.json",
    "secret.html",
    "out",
    "link.json",
    ".json",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, with links to what is beside its folder."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.json").write_text("{}")
    (outside / "secret.html").write_text(REPORT)
    folder = outside / "runs"
    (folder / "digits").mkdir(parents=True)
    (folder / "digits" / "rank0.json").write_text("{}")
    (folder / "digits" / "report.html").write_text(REPORT)
    (folder / "digits" / "link.json").symlink_to(outside / "secret.json")
    (folder / "digits" / "out").symlink_to(outside)
    return folder


@given(
    st.sampled_from(["/trace/", "/report/", "/run/", "/data/", "/data/run/", "/generated/", "/", ""]),
    st.lists(st.sampled_from([*SLASHES, *ODD, *NAMES]) | st.text(max_size=3), max_size=8),
)
def test_any_address_gets_an_answer_and_none_leads_out_of_the_folder(folder, kind, parts):
    allowed = {os.stat(folder / "digits" / name).st_ino for name in ("rank0.json", "report.html")}
    answer = Site(RunLists(RunFolder(folder), "https://ui.perfetto.dev")).answer(kind + "".join(parts))
    if answer.file is not None:
        with answer.file as file:
            assert os.fstat(file.fileno()).st_ino in allowed


def test_files_of_the_folder_have_urls(folder):
    site = Site(RunLists(RunFolder(folder), "https://ui.perfetto.dev"))
    for address in ("/trace/digits/rank0.json", "/trace/digits%2Frank0.json", "/report/digits/report.html"):
        answer = site.answer(address)
        assert answer.status == 200
        answer.file.close()
