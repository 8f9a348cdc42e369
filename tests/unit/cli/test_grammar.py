"""All verbs of `kinetoscope` have one grammar: what they take, what they write, how their options are called."""

import argparse
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.cli import main
from kinetoscope.cli.paths import find_run_folder
from support.trace_files import trace_text
from trainsim import Settings, simulate

VERBS = (
    *("record", "recover", "upload", "status", "summary", "explain", "report", "view", "info", "diff", "whatif"),
    *("merge", "convert", "check"),
)
OF_RUNS = ("record", "recover", "upload", "status")
OF_TRACES = tuple(verb for verb in VERBS if verb not in ("explain", "view", *OF_RUNS))
LIVE_FOLDER = "20260102T030405-1-0123abcd"
WRITES = {"report": "page.html", "merge": "out.json", "convert": "out.json.gz", "check": "out.json"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a run of twelve batches."""
    folder = tmp_path_factory.mktemp("recorded") / "mine"
    schedule = kinetoscope.cyclic_schedule(skip_first=0, warmup=0, active=12, per="run")
    with kinetoscope.profile(folder, torch=False, system=False, schedule=schedule, quiet=True) as profiler:
        for _ in profiler.batches(range(12)):
            with profiler.marker("forward"):
                pass
    return folder


@pytest.fixture
def run(recorded, tmp_path, monkeypatch):
    """A copy of that run, ``mine`` in the working folder."""
    shutil.copytree(recorded, tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    return Path("mine")


def called(*words):
    """The exit code of a command, wherever it comes from."""
    try:
        return main([str(word) for word in words])
    except SystemExit as ended:
        return ended.code


def words_of(verb, path):
    """Return a command of this verb on a path."""
    more = {
        "diff": [path],
        "report": ["-o", "page.html"],
        "merge": ["-o", "out.json"],
        "convert": ["-o", "out.json.gz"],
    }
    return [verb, path, *more.get(verb, [])]


def parser_of(verb):
    parser = argparse.ArgumentParser(prog=f"kinetoscope {verb}")
    importlib.import_module(f"kinetoscope.cli.{verb}").add_arguments(parser)
    return parser


def test_the_command_alone_lists_all_verbs_by_task(capsys):
    assert called() == 0
    printed = capsys.readouterr().out
    tasks = re.findall(r"^(\w+):$", printed, re.M)
    assert tasks == ["record", "look", "compare", "files"]
    assert sorted(re.findall(r"^  (\w+) +\w", printed, re.M)) == sorted(["run", "try", *VERBS])


def test_a_mistyped_verb_is_answered_with_the_nearest_one(capsys):
    assert called("sumary", "x") == 2
    assert capsys.readouterr().err == "error: Unknown command sumary. Did you mean summary?\n"


# -- what they take


@pytest.mark.parametrize("name", ["nope", "nope/deep.json", "nope*.json", "mine/traces/nope[12].json"])
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "explain"])
def test_missing_path_is_one_line_with_exit_code_2(verb, name, run, capsys):
    assert called(*words_of(verb, name)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(("error: No such file or folder: ", "error: No file matches "))
    assert len(printed.err.splitlines()) == 1
    assert name in printed.err
    assert sorted(os.listdir()) == ["mine"], "nothing was written"


@pytest.mark.parametrize("kind", ["run", "run with a slash", "folder", "trace", "glob"])
@pytest.mark.parametrize("verb", OF_TRACES)
def test_a_verb_takes_a_trace_a_folder_of_traces_and_the_folder_of_a_run(verb, kind, run, capsys):
    path = {
        "run": "mine",
        "run with a slash": "./mine/",
        "folder": "mine/traces",
        "trace": "mine/traces/ep0-ba12-rank0.json.gz",
        "glob": "mine/traces/ep*.json.gz",
    }[kind]
    assert called(*words_of(verb, path)) == 0, capsys.readouterr().err


@pytest.mark.parametrize("path", ["mine", "mine/", "mine/traces", "mine/traces/ep0-ba12-rank0.json.gz"])
@pytest.mark.parametrize("verb", OF_RUNS)
def test_a_verb_for_a_whole_run_takes_the_same_and_works_on_its_run(verb, path, run, capsys):
    status = called(verb, path)
    printed = capsys.readouterr()
    if verb == "upload":
        assert (status, printed.out) == (0, "No pending uploads.\n")
    elif verb == "record":
        assert (status, printed.err.splitlines()[0]) == (
            1,
            "error: This run has ended. See its recordings: kinetoscope summary mine",
        )
    elif verb == "status":
        assert status == 0
        assert printed.out.startswith("finished: 1 rank, step 11, ")
    else:
        assert "Nothing to recover in mine: " in printed.err


@pytest.mark.parametrize("path", [".", "mine", "mine/traces", "mine/traces/ep0-ba12-rank0.json.gz"])
def test_view_takes_the_same(path, run):
    command = [sys.executable, "-m", "kinetoscope", "view", path, "--no-open", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    listed = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert process.stdout.read() == ""
    process.stdout.close()
    assert listed["num_runs"] == 1
    assert listed["link"].startswith("http://127.0.0.1:")


def test_folder_of_runs_named_traces_is_a_folder_of_runs(run, capsys):
    Path("traces").mkdir()
    shutil.copytree("mine", "traces/mine")
    assert called("recover", "traces") == 1
    assert "Nothing to recover in traces: " in capsys.readouterr().err


def test_run_without_saved_traces_is_reported_with_the_command_that_gets_them(run, capsys):
    shutil.rmtree("mine/traces")
    Path("mine/live", LIVE_FOLDER).mkdir(parents=True)
    assert called("check", "mine") == 1
    assert "kinetoscope recover mine" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["check", "merge", "convert"])
def test_restarted_run_shows_the_last_or_the_requested_attempt(verb, run, capsys):
    again = Path("mine/traces/attempt1")
    again.mkdir()
    trace = Path("mine/traces/ep0-ba12-rank0.json.gz")
    text = trace_text(trace)
    (again / trace.name).write_text(text.replace('"forward"', '"other"'), encoding="utf-8")
    (again / "merged_trace.json").write_text(text, encoding="utf-8")
    assert called(*words_of(verb, "mine"), "--json") == 0
    last = capsys.readouterr()
    assert "this is the last attempt, 1" in last.err
    assert called(*words_of(verb, "mine"), "--json", "--attempt", "0") == 0
    first = capsys.readouterr()
    assert "this is attempt 0" in first.err
    if verb != "merge":
        assert "attempt1" in last.out
        assert "attempt1" not in first.out
    assert called(*words_of(verb, "mine"), "--attempt", "7") == 2
    assert "--attempt: mine has no traces of attempt 7. Attempts with traces: 0, 1.\n" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["check", "merge", "convert"])
def test_merged_trace_is_used_if_only_it_was_kept(verb, run, capsys):
    Path("mine/traces/ep0-ba12-rank0.json.gz").unlink()
    assert called(*words_of(verb, "mine")) == 0, capsys.readouterr().err


# -- what they write and print


@pytest.mark.parametrize("option", ["-o", "--output"])
@pytest.mark.parametrize(("verb", "name"), WRITES.items())
def test_a_verb_that_writes_takes_the_output_as_an_option(verb, name, option, run):
    assert called(verb, "mine", option, name) == 0
    assert Path(name).stat().st_size


@pytest.mark.parametrize(
    "words",
    [
        ("merge", "-o", "out.json", "mine"),
        ("convert", "mine", "-o", "out.json"),
        ("check", "mine", "--repair", "out.json"),
    ],
)
def test_known_output_locations_still_work(words, run):
    assert called(*words) == 0
    assert Path("out.json").stat().st_size


@pytest.mark.parametrize("words", [("merge",), ("merge", "mine"), ("convert", "mine")])
def test_without_an_output_it_is_asked_for(words, run, capsys):
    assert called(*words) == 2
    assert re.search("-o OUTPUT|PATH", capsys.readouterr().err)
    assert sorted(os.listdir()) == ["mine"]


@pytest.mark.parametrize("verb", [*OF_TRACES, "upload", "status", "explain"])
def test_a_verb_prints_its_facts_as_json(verb, run, capsys):
    words = words_of(verb, "mine") if verb != "explain" else ["explain", "blocked"]
    assert called(*words, "--json") == 0
    assert json.loads(capsys.readouterr().out)


# -- how their options are called


@pytest.mark.parametrize("verb", VERBS)
def test_a_mistyped_option_is_answered_with_the_one_that_was_meant(verb, run, capsys):
    assert called(*words_of(verb, "mine"), "--jsn") == 2
    printed = capsys.readouterr().err
    assert printed == "error: Unrecognized arguments: --jsn. Did you mean --json?\n"


def test_each_option_has_the_same_unit_and_the_same_words_in_all_verbs():
    forms = defaultdict(set)
    for verb in VERBS:
        listed = (action for action in parser_of(verb)._actions if action.help != argparse.SUPPRESS)
        for action in filter(lambda action: action.option_strings, listed):
            option = next(name for name in action.option_strings if name.startswith("--"))
            words = action.help if option != "--output" else ""
            forms[option].add((action.metavar, words, tuple(action.choices or ())))
    different = {option: found for option, found in forms.items() if len(found) > 1}
    assert not different


@pytest.mark.parametrize("verb", VERBS)
def test_each_concept_has_one_name_everywhere(verb):
    actions = parser_of(verb)._actions
    options = {option: action for action in actions for option in action.option_strings}
    assert "--json" in options
    assert not [action.metavar for action in actions if action.metavar in ("S", "R", "N,M-K", "DIRECTORY", "FILE")]
    places = [action.metavar for action in actions if not action.option_strings]
    assert places in (["PATH"], ["BEFORE", "AFTER"], ["KIND"])
    if verb in WRITES:
        assert options["-o"] is options["--output"]


WRONG = [
    ("--ranks", "x", ("summary", "report", "diff", "whatif", "merge", "upload")),
    ("--ranks", "0-x", ("summary", "report", "diff", "whatif", "merge", "upload")),
    ("--ranks", "99", ("summary", "report", "diff", "whatif", "merge")),
    ("--last", "-1", ("summary", "report", "diff", "whatif", "merge")),
    ("--attempt", "x", ("summary", "report", "diff", "whatif", "info", "merge", "convert", "check")),
    ("--attempt", "7", ("summary", "report", "diff", "whatif", "info", "merge", "convert", "check")),
    ("--on-time", "9", ("whatif",)),
    ("--faster", "nope=2", ("whatif",)),
    ("--faster", "nope", ("whatif",)),
    ("--fix", "9", ("whatif",)),
    ("--without", "nope", ("whatif",)),
    ("--fail-over", "x", ("diff",)),
    ("--jobs", "0", ("check", "convert")),
    ("--batches", "x", ("merge",)),
    ("--batches", "90-99", ("merge",)),
    ("--port", "x", ("view",)),
    ("--perfetto-url", "x", ("view",)),
    ("--to", "x", ("upload",)),
    ("--retry-for", "x", ("upload",)),
]


@pytest.mark.parametrize(("verb", "option", "value"), [(verb, *pair) for *pair, verbs in WRONG for verb in verbs])
def test_an_error_names_the_argument_that_was_written(verb, option, value, run, capsys):
    assert called(*words_of(verb, "mine"), option, value) in (1, 2)
    printed = capsys.readouterr().err
    assert option in printed


# -- one run compared with itself


@pytest.mark.parametrize("after", ["mine", "mine/", "mine/traces"])
def test_a_run_is_the_same_as_itself(after, run, capsys):
    assert called("diff", "mine", after, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["verdict"] for row in found["rows"]} == {"same"}
    assert called("diff", "mine", after) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Both are the same recording." in printed
    assert "No significant change: " in printed


def test_a_trace_without_steps_is_the_same_as_itself(run):
    assert called("diff", "mine", "mine", "--step", "no such span") == 0


# -- completion in a shell


def completions(line):
    """Return argcomplete's completions for a shell."""
    pytest.importorskip("argcomplete")
    reader, writer = os.pipe()
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": "answers",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
        "_ARGCOMPLETE_COMP_WORDBREAKS": " ",
    }
    os.close(reader)
    os.close(writer)
    ended = subprocess.run(
        [sys.executable, "-c", "from kinetoscope.cli import command; command()"], env=environment, timeout=60
    )
    assert ended.returncode == 0
    return set(re.split(r"[\s\x0b]+", Path("answers").read_text()))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kinetoscope su", {"summary"}),
        ("kinetoscope summary --js", {"--json"}),
        ("kinetoscope explain memory_l", {"memory_limit"}),
        ("kinetoscope check mi", {"mine"}),
        ("kinetoscope whatif --without gc", {"gc"}),
    ],
)
def test_a_shell_completes_verbs_options_kinds_and_paths(line, expected, run):
    assert expected <= {answer.rstrip("/") for answer in completions(line)}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_script_of_the_shell_comes_from_argcomplete(shell):
    argcomplete = pytest.importorskip("argcomplete")
    assert "kinetoscope" in argcomplete.shellcode(["kinetoscope"], shell=shell)


# -- what people type from habit


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("export_chrome_trace", "below {run}"),
        ("key_averages", "kinetoscope summary {run}"),
        ("summary", "kinetoscope summary {run}"),
        ("stop", "close()"),
        ("events", "kinetoscope.load('{run}')"),
        ("export_stacks", "kinetoscope report {run}"),
        ("export_memory_timeline", "kinetoscope report {run}"),
        ("add_metadata", "kinetoscope.torch.profile"),
    ],
)
def test_a_name_of_another_profiler_is_answered_with_the_way_here(name, way, tmp_path):
    with kinetoscope.profile(tmp_path / "mine", torch=False, system=False, quiet=True) as profiler:
        assert not hasattr(profiler, name)
        with pytest.raises(AttributeError, match=re.escape(way.format(run=tmp_path / "mine"))) as raised:
            getattr(profiler, name)()
        for _ in profiler.batches(range(3)):
            pass
    assert name in str(raised.value)


def test_any_other_name_is_an_ordinary_error():
    profiler = kinetoscope.Profiler(lambda state: kinetoscope.ProfilerAction.SKIP)
    with pytest.raises(AttributeError, match=r"^'Profiler' object has no attribute 'nothing'$"):
        profiler.nothing()


# -- what must not be lost, or shown


def traces_of(folder, num_ranks=2):
    """Traces that ranks of ours have written."""
    folder.mkdir(parents=True, exist_ok=True)
    return [str(path) for path in simulate(Settings(num_ranks=num_ranks, num_steps=2)).write(folder)]


@pytest.mark.parametrize("command", ["merge", "convert"])
def test_a_trace_is_not_replaced_because_o_was_forgotten(command, tmp_path, capsys):
    files = traces_of(tmp_path / "traces")
    before = [Path(file).read_bytes() for file in files]
    assert main([command, *files]) == 2
    assert "Pass -o OUTPUT." in capsys.readouterr().err
    assert [Path(file).read_bytes() for file in files] == before


def test_merged_trace_is_rewritten_at_its_recorded_path(tmp_path):
    files, merged = traces_of(tmp_path / "traces"), str(tmp_path / "all.json")
    assert [main(["merge", "-o", merged, *files]), main(["merge", "-o", merged, *files])] == [0, 0]


def test_two_traces_of_one_name_are_not_written_to_one_file(tmp_path, capsys):
    first, other = traces_of(tmp_path / "a", 1), traces_of(tmp_path / "b", 1)
    assert main(["convert", *first, *other, "-o", str(tmp_path / "packed"), "--suffix", ".json.gz"]) == 2
    assert "Two outputs would have the same path" in capsys.readouterr().err
    assert not list((tmp_path / "packed").glob("*"))


def test_view_serves_nothing_next_to_a_folder_only_named_traces(tmp_path):
    traces_of(tmp_path / "project" / "traces")
    assert find_run_folder(str(tmp_path / "project" / "traces")) == tmp_path / "project" / "traces"
    (tmp_path / "project" / "traces" / ".manifest").mkdir()
    assert find_run_folder(str(tmp_path / "project" / "traces")) == tmp_path / "project"


def test_another_json_file_in_the_folder_of_a_run_hides_no_trace(tmp_path, capsys):
    traces_of(tmp_path / "run" / "traces")
    (tmp_path / "run" / "traces" / ".manifest").mkdir()
    (tmp_path / "run" / "summary.json").touch()  # as a shell makes it for `summary run --json > run/summary.json`
    for command in (["summary", "--no-cache"], ["check"], ["info", "--no-cache"]):
        assert main([*command, "--json", str(tmp_path / "run")]) == 0, command
        assert str(tmp_path / "run" / "summary.json") not in capsys.readouterr().out


def test_unsaved_data_is_reported_before_the_reason_of_no_recording(tmp_path, capsys):
    run = tmp_path / "my run"
    with kinetoscope.profile(run, torch=False, system=False, quiet=True):
        pass
    assert main(["check", str(run)]) != 0
    assert "Nothing was recorded" in capsys.readouterr().err
    (run / "live" / LIVE_FOLDER).mkdir(parents=True)
    for output in ([], ["-o", str(tmp_path / "all.json")]):
        assert main(["merge" if output else "check", str(run), *output]) != 0
        assert f"kinetoscope recover '{run}'" in capsys.readouterr().err
