"""`kinetoscope diff`: what got slower from one run to another, and the exit code that says so."""

import json
from dataclasses import replace

import pytest

from kinetoscope.cli import main
from trainsim import Settings, simulate

SETTINGS = Settings(num_ranks=2, num_steps=10, num_layers=2, has_device=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two recordings of one program, and one of a program whose aten::mm was a tenth faster."""
    folder = tmp_path_factory.mktemp("runs")
    simulate(SETTINGS).write(folder / "one")
    simulate(replace(SETTINGS, seed=1)).write(folder / "other")
    simulate(replace(SETTINGS, seed=2, faster=(("aten::mm", 1.1),))).write(folder / "faster")
    return folder


def diff(*arguments):
    return main(["diff", *map(str, arguments)])


def test_a_slower_operator_is_exit_code_1_and_in_the_table(runs, capsys):
    assert diff(runs / "faster", runs / "one") == 1
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("operator  aten::mm")]
    assert any("slower" in row for row in rows)
    assert "got slower or larger by more than 5 %." in "\n".join(lines)


def test_two_recordings_of_one_program_are_exit_code_0(runs, capsys):
    assert diff(runs / "one", runs / "other") == 0
    output = capsys.readouterr().out
    assert output.startswith("No significant change: ")
    assert "inconclusive: they may be slower or larger by more than 5 %" in " ".join(output.split())


@pytest.mark.parametrize(("part", "status"), [("20%", 0), ("0.2", 0), ("3 %", 1), ("0.03", 1)])
def test_the_change_to_fail_at_is_a_percentage_or_a_part(part, status, runs):
    assert diff(runs / "faster", runs / "one", "--fail-over", part) == status


@pytest.mark.parametrize("part", ["much", "5", "-1%", "", "nan", "%"])
def test_another_change_to_fail_at_is_an_error_that_says_how_to_write_it(part, runs, capsys):
    with pytest.raises(SystemExit) as ended:
        diff(runs / "one", runs / "other", f"--fail-over={part}")
    assert ended.value.code == 2
    assert "Write it as in 5% or 0.05" in capsys.readouterr().err


def test_inconclusive_step_is_exit_code_3_with_the_number_of_steps_needed(tmp_path, capsys):
    simulate(replace(SETTINGS, num_steps=5)).write(tmp_path / "short")
    simulate(replace(SETTINGS, num_steps=5, seed=1)).write(tmp_path / "other")
    assert diff(tmp_path / "short", tmp_path / "other") == 3
    output = " ".join(capsys.readouterr().out.split())
    assert output.startswith("Inconclusive: ")
    assert "A verdict needs about 3 more steps of each run." in output
    assert "5 of the 8 steps that an interval needs" in output


def test_runs_without_steps_are_exit_code_3_and_a_sentence(runs, capsys):
    assert diff(runs / "one", runs / "other", "--step", "no such span") == 3
    assert "no step was recorded, so nothing can be compared" in " ".join(capsys.readouterr().out.split())


def test_only_the_last_seconds_are_compared_if_asked_for(runs, capsys):
    assert diff(runs / "one", runs / "other", "--last", "0.01", "--json") == 3
    assert json.loads(capsys.readouterr().out)["before"]["num_steps"] < 8


def test_a_missing_file_is_exit_code_2_since_1_means_slower(runs, tmp_path, capsys):
    assert diff(runs / "one", tmp_path / "none") == 2
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_json_has_all_rows_of_the_ranks_that_were_asked_for(runs, capsys):
    assert diff(runs / "faster", runs / "one", "--json", "--ranks", "1") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["before"]["ranks"] == found["after"]["ranks"] == [1]
    assert found["rows"][0]["name"] == "aten::mm"
    assert {"kind", "name", "before", "after", "unit", "change", "interval", "verdict"} <= found["rows"][0].keys()


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_on_the_screen(width, runs, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    diff(runs / "faster", runs / "one")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    header = next(line for line in lines if line.startswith("kind"))
    assert header.split() == ["kind", "name", "before", "after", "change", "95", "%", "CI,", "%", "verdict"]
    assert all("…" not in line[header.index("before") :] for line in lines), "only names are cut"


def test_names_cannot_steer_the_terminal(tmp_path, capsys):
    for file, name in (("one.json", "aten::mm"), ("other.json", "\x1b[31m[bold]red[/bold]")):
        (tmp_path / file).write_text(json.dumps(events_of(name)), encoding="utf-8")
    diff(tmp_path / "one.json", tmp_path / "other.json", "--details")
    screen = capsys.readouterr().out
    assert "\x1b" not in screen
    assert "\\x1b[31m[bold]" in screen


def events_of(operator):
    """Return ten steps with one operator."""
    steps = [(f"ProfilerStep#{step}", "user_annotation", 100 * step, 100) for step in range(10)]
    calls = [(operator, "cpu_op", 100 * step, 50) for step in range(10)]
    return [
        {"ph": "X", "name": name, "cat": category, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        for name, category, ts, dur in steps + calls
    ]
