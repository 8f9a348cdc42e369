"""The end report of a run appears wherever training runs: without a terminal, in a narrow one, in a notebook, under
Slurm.

Real processes.
"""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

import pytest

from support.fork_server import run_command, run_program
from support.notebook_kernel import run_cells
from support.page_data import page_text
from support.trace_files import trace_json

MAX_WAIT_S = 150
TRAINING = """
import logging, sys, time
import kinetoscope
import kinetoscope.handlers.top_finding as search
import kinetoscope.handlers.merge_process as merge
{before}

def load():
    for batch in range(13):
        time.sleep(0.02)
        yield batch

# The merge of a run with two ranks waits for the other one, and on a busy machine 10 s may be too short for the merge.
merge._WAIT_FOR_RANKS_S = 0.5
kinetoscope.Profiler.__init__.__kwdefaults__["close_timeout_s"] = 100.0
with kinetoscope.profile("run", torch=False, system=False{settings}) as profiler:
    for batch in profiler.batches(load()):
        pass
profiler.close()
{after}
"""
IN_LONG_TIME = "search.MAX_SECONDS = search.MAX_SECONDS_WATCHED = 100  # on a busy machine"
SAVED = "Kinetoscope: 1 window recorded in 13 batches, saved to run/traces/merged_trace.json.gz\n"
NEXT = "kinetoscope summary run\n"
FOUND = re.compile(
    f"{re.escape(SAVED)}Kinetoscope: Top finding: Input-bound: the loop waits [0-9.]+ ms/step for its next batch; "
    r"estimated saving [0-9.]+ ms/step\.\n"
    f"{re.escape(NEXT)}"
)


def training(*, before=IN_LONG_TIME, settings="", after=""):
    return TRAINING.format(before=before, settings=settings, after=after)


def command(program):
    return [sys.executable, "-c", program]


def run(folder, program, **environment):
    """Return the stderr of a training run without a terminal."""
    ended = run_program(program, folder=folder, environment=os.environ | environment, timeout_s=MAX_WAIT_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def run_on_terminal(folder, program, *, columns=0):
    """Return the output of a training run to a real terminal of so many columns."""
    terminal, stderr = pty.openpty()
    ioctl(stderr, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(command(program), cwd=folder, stderr=stderr, env=environment)
    os.close(stderr)
    output = b""
    try:
        while piece := os.read(terminal, 4096):
            output += piece
    except OSError:  # the other end has closed
        pass
    os.close(terminal)
    assert process.wait(MAX_WAIT_S) == 0, output
    return output.decode().replace("\r\n", "\n")


def test_end_report_appears_once_without_terminal_despite_info_log_and_double_close(tmp_path):
    logging = f"logging.basicConfig(level=logging.INFO)\n{IN_LONG_TIME}"
    assert FOUND.fullmatch(run(tmp_path, training(before=logging)))


def test_saved_files_and_next_command_are_reported_without_terminal_and_time(tmp_path):
    assert run(tmp_path, training(before="search.MAX_SECONDS = 0.01")) == f"{SAVED}{NEXT}"


def test_on_a_terminal_there_is_more_time_to_find_something(tmp_path):
    time = "search.MAX_SECONDS, search.MAX_SECONDS_WATCHED = 0.01, 100"
    output = run_on_terminal(tmp_path, training(before=time), columns=200)
    assert FOUND.fullmatch(output), output


def test_in_40_columns_every_line_ends_between_words(tmp_path):
    output = run_on_terminal(tmp_path, training(), columns=40)
    assert max(map(len, output.splitlines())) <= 40
    words = " ".join(output.split())
    assert words.count("saved to run/traces/merged_trace.json.gz Kinetoscope: Top finding: Input-bound: ") == 1
    assert words.endswith(" kinetoscope summary run")


def test_end_report_is_printed_on_a_terminal_of_unknown_width(tmp_path):
    output = run_on_terminal(tmp_path, training(), columns=0)
    assert "kinetoscope summary run" in " ".join(output.split())


@pytest.mark.parametrize("streams", ["2>&-", ">&- 2>&-", "2>/dev/full"])
def test_with_closed_or_full_stderr_the_run_ends_as_it_should(streams, tmp_path):
    (tmp_path / "train.py").write_text(training(after='open("ended", "w").close()'))
    line = f'"{sys.executable}" train.py {streams}'
    ended = subprocess.run(["bash", "-c", line], cwd=tmp_path, timeout=MAX_WAIT_S)
    assert ended.returncode == 0
    assert (tmp_path / "ended").exists()
    assert (tmp_path / "run" / "traces" / "merged_trace.json.gz").exists()


BUFFERED = "import os, sys\nsys.stderr = os.fdopen(2, 'w', buffering=8192, closefd=False)\n"
"""As stderr is from Python 3.14 on."""


@pytest.mark.parametrize("stderr", ["/dev/full", "a pipe that is closed"])
def test_a_buffered_stderr_that_takes_nothing_leaves_the_exit_code_alone(stderr, tmp_path):
    (tmp_path / "train.py").write_text(BUFFERED + training())
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full" if stderr == "/dev/full" else writer, "wb") as target:
        ended = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, stderr=target, timeout=MAX_WAIT_S)
    assert ended.returncode == 0


def test_warning_to_an_unwritable_buffered_stderr_keeps_the_exit_code(tmp_path):
    unwritable = "import kinetoscope\nkinetoscope.profile('/proc/nowhere/run', torch=False, system=False)\n"
    for program in (BUFFERED + unwritable, unwritable):
        with open("/dev/full", "wb") as target:
            ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, stderr=target, timeout=MAX_WAIT_S)
        assert ended.returncode == 0
    ended = subprocess.run([sys.executable, "-c", unwritable], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stderr.count("Nothing is recorded; training continues.") == 1
    with_log = f"import logging\nlogging.basicConfig(filename='log')\n{unwritable}"
    ended = subprocess.run([sys.executable, "-c", with_log], cwd=tmp_path, capture_output=True, text=True)
    assert ended.stderr == ""
    assert "Nothing is recorded" in (tmp_path / "log").read_text()


def test_messages_go_to_the_log_with_stderr_closed(tmp_path):
    before = f'logging.basicConfig(level=logging.INFO, filename="log", format="%(message)s")\n{IN_LONG_TIME}'
    (tmp_path / "train.py").write_text(training(before=before))
    line = f'"{sys.executable}" train.py 2>&-'
    assert subprocess.run(["bash", "-c", line], cwd=tmp_path, timeout=MAX_WAIT_S).returncode == 0
    assert FOUND.fullmatch((tmp_path / "log").read_text())


def test_run_ends_without_waiting_for_the_reader_of_a_full_pipe(tmp_path):
    fill = (
        "import os\nos.set_blocking(2, False)\ntry:\n    while True: os.write(2, b'-' * 4096)\nexcept OSError: pass\n"
    )
    program = training(before=f"{fill}os.set_blocking(2, True)")
    reader, writer = os.pipe()
    process = subprocess.Popen(command(program), cwd=tmp_path, stderr=writer)
    os.close(writer)
    try:
        assert process.wait(MAX_WAIT_S) == 0
    finally:
        os.close(reader)


def test_quiet_stops_all_of_it(tmp_path):
    assert run(tmp_path, training(settings=", quiet=True")) == ""


@pytest.mark.parametrize(("task", "is_reported"), [("0", True), ("1", False)])
def test_first_task_of_a_slurm_step_prints_the_end_report(task, is_reported, tmp_path):
    slurm = {"SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"}
    slurm |= {"SLURM_PROCID": task, "SLURM_LOCALID": task, "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "2"}
    output = run(tmp_path, training(), **slurm)
    assert bool(FOUND.fullmatch(output)) is is_reported
    assert is_reported or output == ""
    assert (tmp_path / "run" / "traces" / f"ep0-ba12-rank{task}.json.gz").exists()


def test_single_process_training_in_a_slurm_batch_script_prints_its_end_report(tmp_path):
    slurm = {"SLURM_JOB_ID": "17", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    assert FOUND.fullmatch(run(tmp_path, training(), **slurm))


def test_end_report_of_training_loads_neither_polars_nor_the_analysis(tmp_path):
    after = "print([name for name in sys.modules if name.startswith(('polars', 'rich', 'kinetoscope.analysis', "
    after += "'kinetoscope.frames', 'IPython'))], file=sys.stderr)"
    output = run_on_terminal(tmp_path, training(after=after), columns=200)
    assert FOUND.match(output)
    assert output.endswith(f"{NEXT}[]\n")


# -- what a search has found, or only begun, is kept


def files_in(cache):
    return {path.name: path.stat().st_ino for path in cache.glob("kinetoscope/*") if path.is_file()}


def summary(folder, cache):
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    ended = run_command("summary", "run", folder=folder, environment=environment, timeout_s=MAX_WAIT_S)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_search_results_are_cached_for_the_next_command(tmp_path):
    cache = tmp_path / "cache"
    assert FOUND.fullmatch(run(tmp_path, training(), XDG_CACHE_HOME=str(cache)))
    kept = files_in(cache)
    assert "1  Input-bound: " in summary(tmp_path, cache)
    assert files_in(cache) == kept, "the command has written nothing, since all was there"


def test_truncated_search_continues_in_the_next_command_and_keeps_its_results(tmp_path):
    cache, site = tmp_path / "cache", tmp_path / "site"
    site.mkdir()
    job = "kinetoscope.cli.top_finding_job"
    ends = f"import os, sys\nif '{job}' in sys.orig_argv:\n    os.nice = lambda niceness: os._exit(1)\n"
    (site / "sitecustomize.py").write_text(ends)
    output = run(tmp_path, training(), XDG_CACHE_HOME=str(cache), PYTHONPATH=str(site))
    assert output == f"{SAVED}{NEXT}"
    assert files_in(cache) == {}
    assert "1  Input-bound: " in summary(tmp_path, cache)
    kept = files_in(cache)
    assert any(name.endswith(".report.json") for name in kept)
    assert "1  Input-bound: " in summary(tmp_path, cache)
    assert files_in(cache) == kept


# -- in a notebook


def test_in_a_notebook_the_end_is_one_small_block_with_links(tmp_path):
    cell = training(settings=', run_name="a & b"')
    first, second = run_cells(tmp_path, [cell, cell.replace('"run"', '"run2"')])
    for outputs, folder in ((first, "run"), (second, "run2")):
        (block,) = outputs
        html, text = block.data["text/html"], block.data["text/plain"]
        assert len(html) < 2_000
        assert f'<a href="{folder}/traces/merged_trace.json.gz" target="_blank">' in html
        assert "Input-bound: " in html
        assert text.splitlines()[0] == SAVED.replace("run/", f"{folder}/").rstrip()
        assert text.endswith(f"\nkinetoscope.view('{folder}')")


def test_in_a_notebook_the_report_is_linked_too(tmp_path):
    before = "search.MAX_SECONDS_WITH_REPORT = 100"
    (outputs,) = run_cells(tmp_path, [training(before=before, settings=", report=True")])
    (block,) = outputs
    assert '<a href="run/report.html" target="_blank">' in block.data["text/html"]
    assert page_text((tmp_path / "run" / "report.html").read_text())


def test_in_a_notebook_quiet_shows_nothing(tmp_path):
    assert run_cells(tmp_path, [training(settings=", quiet=True")]) == [[]]


def test_ipython_shell_prints_the_end_report_as_other_terminals(tmp_path):
    (tmp_path / "train.py").write_text(training())
    ended = subprocess.run(
        [sys.executable, "-m", "IPython", "--quick", "--no-banner", "train.py"],
        cwd=tmp_path,
        env=os.environ | {"IPYTHONDIR": str(tmp_path / "ipython")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAX_WAIT_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert FOUND.search(ended.stderr)
    assert trace_json(tmp_path / "run" / "traces" / "merged_trace.json.gz")
