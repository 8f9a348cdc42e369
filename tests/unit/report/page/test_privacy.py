"""Data that a page omits, since it is made to be sent."""

import re

import pytest

import kinetoscope
from kinetoscope.formats.known_names import is_name_of_torch
from kinetoscope.formats.sentence_redaction import LEFT_OUT
from kinetoscope.pages.html_file import encode_page
from support.page_data import page_of, span, write_trace

HOME = "/home/alice.secret"


def steps_with_secrets():
    """Return a run of a user, with home and name wherever a trace has text."""
    events = []
    for step in range(10):
        first = 1000 * step
        where = f"{HOME}/project/secret_train.py(12): secret_function"
        events += [
            span(f"ProfilerStep#{step}", first, 900, category="user_annotation"),
            span(where, first + 1, 890, category="python_function"),
            span(f"{HOME}/venv/lib/python3.11/site-packages/torch/nn/linear.py(9): forward", first + 3, 80)
            | {"cat": "python_function"},
            span("nn.Module: SecretNet_0", first + 4, 70, category="python_function"),
            span("aten::mm", first + 5, 40, **{"Input Dims": [[step, 2]], "path": f"{HOME}/data set/secret.bin"}),
            span("secret::operator", first + 50, 10, note=r"C:\Users\alice.secret\secret.txt"),
            span(f"secret_marker in {HOME}/runs", first + 500, 30, category="secret_category"),
            span("secret_marker", first + 531, 5, category="marker"),
            span("SecretFunctionBackward", first + 540, 10),
            span("secret_kernel", first + 600, 10, tid=7, category="kernel", file=f"{HOME}/x/secret_kernel.py"),
            span("Optimizer.step#SecretOptimizer.step", first + 700, 10, category="user_annotation"),
            span("gc of alice.secret", first + 750, 20, category="gc"),
            {"ph": "C", "name": "secret loss", "pid": 1, "tid": 1, "ts": first, "args": {f"{HOME}/x": step}},
        ]
    names = [("thread_name", "secret thread"), ("process_name", f"python {HOME}/secret_train.py")]
    events += [{"ph": "M", "name": name, "pid": 1, "tid": 1, "args": {"name": value}} for name, value in names]
    return events


HEADER = {
    "kinetoscope": {
        "rank": 0,
        "run_name": f"secret_run by alice.secret in {HOME}/runs",
        "host": "secret-host",
        "notes": [f"{HOME}/runs/secret_file.json was left out; alice.secret was warned of secret_marker."],
    },
    "command": f"python {HOME}/train.py --password secret",
    "user_metadata": {"owner": "alice.secret"},
}


def text_of(page):
    """Return all that a page has, as text."""
    return encode_page(page).decode("utf-8", "replace")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_trace(tmp_path_factory.mktemp("secret") / "rank0.json", steps_with_secrets(), **HEADER)


@pytest.fixture(scope="module")
def redacted_page(path):
    return page_of(path, redact=True)


def test_neither_homes_nor_names_of_users_are_in_a_page(path):
    assert "alice" in path.read_text()

    text = text_of(page_of(path))

    assert "alice" not in text
    assert "/home" not in text
    assert "Users" not in text
    assert "password" not in text
    assert "owner" not in text


def test_lines_start_in_the_library_or_in_the_project(path):
    text = text_of(page_of(path))
    assert "torch/nn/linear.py(9): forward" in text
    assert "secret_train.py(12): secret_function" in text
    assert "secret-host" in text


def test_a_redacted_page_has_no_name_that_a_user_chose(redacted_page):
    text = text_of(redacted_page)
    assert "secret" not in text.lower()
    assert "alice" not in text
    for name in ("aten::mm", "torch/nn/linear.py(9): forward", "ProfilerStep#3", "Optimizer.step#", "Input Dims"):
        assert name in text


def test_the_same_name_is_replaced_by_the_same_everywhere(redacted_page):
    (operator, *_) = (row["name"] for row in redacted_page.report["operators"] if not is_name_of_torch(row["name"]))
    assert operator in redacted_page.timeline.texts
    assert any(operator in graph.texts for graph in redacted_page.flame_graphs)


def test_a_note_in_a_header_is_left_out_and_our_own_notes_stay(redacted_page):
    notes = redacted_page.report["run"]["notes"]
    assert LEFT_OUT in notes
    assert any(note.startswith("The estimated savings of findings are unknown: ") for note in notes)


def test_user_name_equal_to_a_kinetoscope_word_changes_no_field(monkeypatch, tmp_path):
    monkeypatch.setattr("getpass.getuser", lambda: "per")
    events = [span("ProfilerStep#0", 0, 900), span("aten::mm", 5, 40, note="of per", per="1")]
    trace = write_trace(tmp_path / "rank0.json", events, kinetoscope={"rank": 0, "run_name": "per"})
    page = page_of(trace)
    assert {"samples_per_s", "flops_per_step", "step_ns"} <= set(page.report["run"])
    assert page.report["run"]["name"] == "user"
    assert kinetoscope.analyze(trace, cache=False)._repr_html_()
    assert page.timeline.details == [{"note": "of user", "user": "1"}]  # what is a trace's is changed


def test_torchs_part_of_a_user_kernel_name_stays(tmp_path):
    kernel = "void at::native::vectorized_elementwise_kernel<4, secret::Functor<float>>(int, secret::Functor<float>)"
    events = [span(f"ProfilerStep#{step}", 1000 * step, 900, category="user_annotation") for step in range(10)]
    events += [span(kernel, 1000 * step + 10, 50, tid=7, category="kernel", stream=7, device=0) for step in range(10)]
    text = text_of(page_of(write_trace(tmp_path / "rank0.json", events), redact=True))
    assert "secret" not in text
    assert "void at::native::vectorized_elementwise_kernel<4, type 1<float>>(int, type 1<float>)" in text


USERS_NOTES = [
    "the project is for google, meta and apple",
    "project titan",
    "steps of the model for the next report",
    "Missing traces: the rank of data, of 8.",
]


@pytest.mark.parametrize("note", USERS_NOTES)
def test_a_note_of_a_user_is_left_out_also_if_our_code_has_its_words(tmp_path, note):
    header = HEADER | {"kinetoscope": HEADER["kinetoscope"] | {"notes": [note]}}
    path = write_trace(tmp_path / "rank0.json", steps_with_secrets(), **header)
    text = text_of(page_of(path, redact=True))
    assert note not in text
    assert not {"google", "titan", "apple"} & set(text.lower().split())


def test_kinetoscope_note_keeps_its_numbers_and_loses_names(tmp_path):
    events = [*steps_with_secrets(), *({"ph": "X", "name": "secret", "pid": 1, "tid": 1, "ts": 5, "dur": -1},) * 3]
    page = page_of(write_trace(tmp_path / "secret_rank0.json", events, **HEADER), redact=True)
    notes = page.report["run"]["notes"]
    assert "file 1: Events with a negative duration were left out: 3." in [_numbered(note) for note in notes], notes


def _numbered(note):
    return re.sub(r"^file \d+", "file 1", note)
