"""One start of a command that does not train: how it ends is said in a sentence, and nothing is left running."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kinetoscope.autoinstrument.trial_files import TrialSettings
from kinetoscope.experiments.start import Command, InterruptedTrialError, delete_start, run_start, size_of
from support.try_programs import find_left_running

TIMEOUT_S = 240


@pytest.fixture
def folder(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "precious").touch()
    return work


def start(folder, *words, is_interrupted=lambda: False, timeout_s=TIMEOUT_S, copies=False):
    settings = TrialSettings(folder=tempfile.mkdtemp(dir=folder.parent), num_steps=20)
    command = Command(words, folder, copies=copies, environment=dict(os.environ))
    try:
        return run_start(command, settings, timeout_s=timeout_s, is_interrupted=is_interrupted)
    finally:
        assert not find_left_running(folder.parent)


FIRST, FULL = "the first step of a torch optimizer", "as the system does when memory is exhausted"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("exit 0", f"it ended before {FIRST}"),
        ("exit 3", f"it ended with exit code 3 before {FIRST}"),
        ("kill -HUP $$", f"it was ended by SIGHUP before {FIRST}"),
        ("sh -c 'kill -9 $$'; exit $?", f"it was killed (SIGKILL) before {FIRST}, {FULL}"),
        ("kill -9 $$", f"it was killed (SIGKILL) before {FIRST}, {FULL}"),
    ],
)
def test_a_command_without_a_step_is_reported_in_a_sentence(line, reason, folder):
    result = start(folder, "sh", "-c", line)
    assert (result.ranks, result.reason) == ([], reason)


def test_a_start_has_a_time_limit(folder):
    result = start(folder, "sh", "-c", "sleep 600 & sleep 600", timeout_s=1)
    assert result.reason == "it did not reach its last step within its time limit of 1 s"


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "], ids=["ends", "ignores_sigterm"])
def test_an_interrupt_ends_all_processes(trap, folder):
    line = f"{trap}setsid sleep 600 & touch started; sleep 600; rm precious"
    with pytest.raises(InterruptedTrialError):
        start(folder, "bash", "-c", line, is_interrupted=(folder / "started").exists)
    assert (folder / "precious").exists()


def test_an_error_while_waiting_ends_all_processes(folder):
    def fail():
        if (folder / "started").exists():
            raise MemoryError
        return False

    with pytest.raises(MemoryError):
        start(folder, "bash", "-c", "setsid sleep 600 & touch started; sleep 600; rm precious", is_interrupted=fail)
    assert (folder / "precious").exists()


def test_special_files_of_the_working_folder_are_not_copied(folder):
    os.mkfifo(folder / "pipe")
    assert "pipe" not in start(folder, "sh", "-c", "ls; exit 1", copies=True).log_tail.split()


def test_a_program_that_writes_below_pwd_writes_into_the_copy(folder, monkeypatch):
    monkeypatch.setenv("PWD", str(folder))
    program = "import os; open(os.environ['PWD'] + '/checkpoint', 'w')"
    start(folder, sys.executable, "-c", program, copies=True)
    assert not (folder / "checkpoint").exists()


def test_an_interrupt_ends_the_copy_of_the_working_folder(folder):
    answers = iter([False, True])
    with pytest.raises(InterruptedTrialError):
        start(folder, "touch", folder / "started", is_interrupted=lambda: next(answers), copies=True)
    assert not (folder / "started").exists()


def test_standard_input_is_empty_and_trackers_are_disabled(folder):
    program = "import os, sys; print(repr(sys.stdin.read()), os.environ['WANDB_MODE']); sys.exit(1)"
    assert start(folder, sys.executable, "-c", program).log_tail == "'' disabled"


def test_the_error_is_the_line_that_names_an_exception(folder):
    lines = "echo 'ValueError: too small'; echo; echo 'torchrun: 1 of 2 ranks failed'; exit 1"
    assert start(folder, "sh", "-c", lines).error == "ValueError: too small"
    assert start(folder, "sh", "-c", "echo 'no such dataset'; echo ---; exit 1").error == "no such dataset"
    assert start(folder, "sh", "-c", "exit 1").error == ""


def test_a_deleted_start_keeps_only_its_log(tmp_path):
    folder = tmp_path / "start"
    (folder / "recording").mkdir(parents=True)
    (folder / "recording" / "trace").write_bytes(bytes(10))
    (folder / "log").write_text("failed")
    assert size_of(folder) == 16
    delete_start(folder, keeps_log=True)
    assert [path.name for path in folder.iterdir()] == ["log"]
    delete_start(folder, keeps_log=False)
    assert not folder.exists()


def test_read_only_folders_of_a_copy_are_deleted(tmp_path):
    folder = tmp_path / "start"
    (folder / "copy" / "objects").mkdir(parents=True)
    (folder / "copy" / "objects" / "sample").touch()
    (folder / "copy" / "objects").chmod(0o555)
    (folder / "copy").chmod(0o555)
    program = (
        "import pathlib, sys; from kinetoscope.experiments.start import delete_start;"
        "delete_start(pathlib.Path(sys.argv[1]), keeps_log=False)"
    )
    drop = ["setpriv", "--bounding-set", "-dac_override"] if os.geteuid() == 0 else []  # root may write everywhere
    subprocess.run([*drop, sys.executable, "-c", program, folder], check=True)
    assert not folder.exists()


def test_a_file_that_is_deleted_meanwhile_has_no_size(tmp_path, monkeypatch):
    (tmp_path / "checkpoint").write_bytes(bytes(10))
    (tmp_path / "temporary").write_bytes(bytes(10))
    read = Path.lstat

    def delete_and_read(path):
        if path.name == "temporary":
            path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "lstat", delete_and_read)
    assert size_of(tmp_path) == 10
