"""`kinetoscope report`, which writes a page into a file."""

import pytest

from kinetoscope.cli import main
from support.page_data import page_text, span, write_trace
from trainsim import Settings, simulate


@pytest.fixture
def run_folder(tmp_path):
    """The folder of a run of two ranks."""
    folder = tmp_path / "run"
    simulate(Settings(num_ranks=2)).write(folder)
    return folder


def report(*arguments):
    """Run the command; return its exit code."""
    return main(["report", "--no-cache", *map(str, arguments)])


def test_the_report_of_a_run_is_written_into_its_folder(run_folder, capsys):
    assert report(run_folder) == 0

    written = run_folder / "report.html"
    page = page_text(written.read_text())
    assert page["report"]["run"]["ranks"] == [0, 1]
    assert {track["rank"] for track in page["timeline"]["tracks"]} == {0, 1}
    assert f"Written: {written} (" in capsys.readouterr().out


def test_report_is_overwritten_and_other_files_are_not(run_folder, tmp_path, capsys):
    output = tmp_path / "notes.html"
    output.write_text("<p>mine</p>")

    assert report(run_folder, "-o", output) == 2
    assert "Kinetoscope did not write it" in capsys.readouterr().err
    assert output.read_text() == "<p>mine</p>"

    assert report(run_folder, "-o", output, "--force") == 0
    assert report(run_folder, "-o", output) == 0


def test_a_folder_as_output_gets_the_report(run_folder, tmp_path):
    assert report(run_folder, "-o", tmp_path) == 0
    assert (tmp_path / "report.html").is_file()


def test_without_a_timeline_the_numbers_stay(run_folder):
    assert report(run_folder, "--no-timeline") == 0
    page = page_text((run_folder / "report.html").read_text())
    assert page["timeline"] is None
    assert page["report"]["steps"]
    assert page["flame_graphs"]


def test_two_folders_are_compared(run_folder, tmp_path):
    other = tmp_path / "other"
    simulate(Settings(num_ranks=2, seed=5)).write(other)
    assert report(run_folder, other) == 0
    page = page_text((other / "report.html").read_text())
    assert page["comparison"]["rows"]


def test_the_ranks_and_the_last_seconds_that_are_asked_for_are_shown(tmp_path):
    events = [span("aten::mm", 1_000_000 * second, 10) for second in range(10)]
    paths = [write_trace(tmp_path / f"rank{rank}.json", events) for rank in range(3)]
    assert report(*paths, "--ranks", "0,2", "--last", "3.5", "-o", tmp_path) == 0
    page = page_text((tmp_path / "report.html").read_text())
    assert [
        (track["rank"], track["row_begins"][-1] - track["row_begins"][0]) for track in page["timeline"]["tracks"]
    ] == [(0, 4), (2, 4)]


def test_a_redacted_report_does_not_name_the_run(tmp_path):
    path = write_trace(tmp_path / "rank0.json", [span("secret", 0, 10)], kinetoscope={"run_name": "mine", "rank": 0})
    assert report(path, "--redact") == 0
    page = page_text((tmp_path / "report.html").read_text())
    assert page["title"] == "run 1"
    assert page["timeline"]["texts"][0] != "secret"
    assert "secret" not in str(page)


def test_a_file_that_cannot_be_written_is_an_error_in_a_sentence(run_folder, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert report(run_folder, "-o", tmp_path / "file" / "report.html") == 1
    assert "Cannot make the folder" in capsys.readouterr().err


def test_trace_from_standard_input_is_shown_completely(tmp_path, monkeypatch):
    path = write_trace(tmp_path / "rank0.json", [span("aten::mm", 0, 10)])
    with path.open("rb") as stream:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stream})())
        assert report("-", "-o", tmp_path / "out.html") == 0
    assert page_text((tmp_path / "out.html").read_text())["timeline"]["tracks"]
