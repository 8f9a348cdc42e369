"""Wrong usage is exit code 2 and one line; a window that does not exist has another exit code."""

import json
import os

import pytest

from kinetoscope.cli import main

BASE_NS = 1_790_857_026_000_000_000


@pytest.fixture(autouse=True)
def two_traces(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for rank in range(2):
        steps = [
            {"ph": "X", "name": f"ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": 100 * step, "dur": 50}
            for step in (3, 4, 5, 9, 10 + 2 * rank)
        ]
        header = {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": rank}}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(header | {"traceEvents": steps}))


@pytest.mark.parametrize(
    "command",
    [
        "convert rank0.json -o out.txt",
        "convert rank0.json rank1.json -o out.json",
        "check rank0.json --repair out.pftrace",
        "check rank0.json rank1.json --repair -",
        "upload . --to nowhere",
    ],
)
def test_wrong_usage_is_exit_code_2_and_one_error(command, capsys, tmp_path):
    assert main(command.split()) == 2
    assert [line.partition(": ")[0] for line in capsys.readouterr().err.splitlines()] == ["error"]
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("verb", ["merge", "convert"])
def test_an_output_is_required(verb, capsys):
    assert main([verb, "rank0.json"]) == 2
    assert capsys.readouterr().err == "error: Missing output file. Pass -o OUTPUT.\n"


@pytest.mark.parametrize(
    "arguments", ["rank0.json --ranks none", "rank0.json --last -1", "rank0.json --batches 5-x", ""]
)
def test_arguments_that_cannot_be_read_or_are_missing_are_exit_code_2_and_one_line(arguments, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["merge", "-o", "out.json", *arguments.split()])
    assert ended.value.code == 2
    assert [line.partition(": ")[0] for line in capsys.readouterr().err.splitlines()] == ["error"]
    assert not list(tmp_path.glob("out*"))


def test_batches_that_no_file_has_are_answered_with_those_that_there_are(capsys):
    assert main(["merge", "-o", "out.json", "rank0.json", "rank1.json", "--batches", "20-30"]) == 1
    message = capsys.readouterr().err
    assert "batches 20 to 30" in message
    assert "There are 3-5, 9-10, 12." in message


def test_the_error_says_that_a_trace_has_no_batches(capsys, tmp_path):
    trace = json.loads((tmp_path / "rank0.json").read_text())
    trace["traceEvents"] = [event | {"name": "step"} for event in trace["traceEvents"]]
    (tmp_path / "rank0.json").write_text(json.dumps(trace))
    assert main(["merge", "-o", "out.json", "rank0.json", "--batches", "3"]) == 1
    assert "no batch at all" in capsys.readouterr().err


def foreign(**header):
    return json.dumps(header | {"traceEvents": [{"ph": "X", "name": "theirs", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]})


COMMANDS = [
    "merge -o out.json rank0.json rank1.json",
    "merge -o out.json.gz rank0.json",
    "merge -o out.pftrace rank0.json",
    "convert rank0.json -o out.pftrace",
    "convert rank0.json -o out.json.gz",
    "convert rank0.json -o out.parquet",
    "check rank0.json --repair out.json",
    "convert rank0.json rank1.json -o many --to .json.gz",
    "check rank0.json rank1.json --repair many",
]


def output_of(command, folder):
    """Return the file, or one of the files, that a command writes."""
    name = next(word for word in command.split() if word.startswith(("out", "many")))
    return folder / (name if name != "many" else "many/rank1.json" + ".gz" * ("--to" in command))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_kinetoscope_did_not_write_is_replaced_only_with_force(command, capsys, tmp_path):
    output = output_of(command, tmp_path)
    output.parent.mkdir(exist_ok=True)
    output.write_text(foreign())
    assert main(command.split()) == 2
    message = capsys.readouterr().err
    assert str(output.relative_to(tmp_path)) in message
    assert "--force" in message
    assert output.read_text() == foreign()
    assert not output.with_name("rank0.json.gz").exists(), "nothing is written before all is known to be free"
    assert main([*command.split(), "--force"]) in (0, 1)
    assert output.read_bytes() != foreign().encode()


@pytest.mark.parametrize(
    "command",
    [command for command in COMMANDS if command.startswith("merge") or "pftrace" in command or "parquet" in command],
)
def test_a_file_that_kinetoscope_wrote_is_replaced_without_a_question(command, tmp_path, capsys):
    for _ in range(2):
        assert main(command.split()) == 0
    assert capsys.readouterr().err == ""


def test_an_empty_file_may_be_written_to(tmp_path):
    (tmp_path / "out.json").touch()
    assert main(["merge", "-o", "out.json", "rank0.json"]) == 0


def test_an_input_that_we_did_not_write_is_not_replaced_by_its_own_repair(tmp_path, capsys):
    before = (tmp_path / "rank0.json").read_text()
    assert main(["check", "rank0.json", "--repair", "rank0.json"]) == 2
    assert (tmp_path / "rank0.json").read_text() == before


@pytest.mark.parametrize(("option", "least"), [("--num-steps", 1), ("--after", 0)])
@pytest.mark.parametrize("number", ["-1", "many", "1e3", "9" * 5000])
def test_fractional_number_of_steps_to_record_is_an_error_as_in_all_commands(option, least, number, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", option, number, "true"])
    assert ended.value.code == 2
    assert f"Write a whole number from {least} to 2,147,483,647" in capsys.readouterr().err


def test_summary_without_a_path_takes_the_newest_run_and_says_which(tmp_path, capsys):
    for moment, name in ((1_700_000_000, "older"), (1_800_000_000, "newer")):
        (tmp_path / "runs" / name / "traces").mkdir(parents=True)
        trace = tmp_path / "runs" / name / "traces" / "rank0.json"
        trace.write_text((tmp_path / "rank0.json").read_text())
        os.utime(trace, (moment, moment))
    assert main(["summary"]) == 0
    printed = capsys.readouterr()
    assert printed.err == "Newest run: runs/newer\n"
    assert printed.out.startswith("newer: ")
