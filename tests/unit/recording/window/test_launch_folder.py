"""The folder of a run: one that no earlier run has used, the same on all ranks of a launch."""

import errno
import multiprocessing
import os

import pytest

import kinetoscope
from kinetoscope.core.job.ranks import Ranks
from kinetoscope.core.paths.later_run import find_latest_rerun
from kinetoscope.errors import FolderNotWritableError, ProfilerStateError
from kinetoscope.recording.window.launch_folder import choose_run_folder
from support.fork_server import run_command, run_program


def in_a_process(job, *arguments):
    """Return the result of a call in a forked child, which is another launch unless the environment names one."""
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=lambda: answers.put(job(*arguments)))
    process.start()
    answer = answers.get(timeout=60)
    process.join()
    return answer


def record(out, rank=0, world_size=1):
    """Record a run as one of its ranks, and return its folder."""
    folder = choose_run_folder(str(out), Ranks(rank, rank, world_size, world_size))
    with kinetoscope.Profiler(
        lambda _: kinetoscope.ProfilerAction.SKIP, kinetoscope.JSONTraceHandler(f"{folder}/traces"), quiet=True
    ):
        pass
    return folder


def refuse(*_):
    raise PermissionError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("has_links", [True, False], ids=["", "without hard links"])
def test_each_of_many_runs_at_once_gets_a_folder_of_its_own(tmp_path, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr(os, "link", refuse)
    out = str(tmp_path / "run")
    context = multiprocessing.get_context("fork")
    answers, is_over = context.Queue(), context.Event()

    def claim():
        answers.put(choose_run_folder(out, Ranks()))
        is_over.wait()

    processes = [context.Process(target=claim) for _ in range(8)]
    for process in processes:
        process.start()
    found = sorted(answers.get(timeout=60) for _ in processes)
    is_over.set()
    for process in processes:
        process.join()
    assert found == [out, *(f"{out}-{number}" for number in range(2, 9))]
    assert os.listdir(f"{out}-2") == [".launch"]


def test_a_folder_of_a_process_that_ended_before_it_recorded_is_free(tmp_path):
    out = str(tmp_path / "run")
    assert in_a_process(choose_run_folder, out, Ranks()) == out
    assert choose_run_folder(out, Ranks()) == out


def test_second_run_gets_a_folder_and_a_second_training_of_a_process_shares_it(tmp_path):
    out = tmp_path / "run"
    assert [in_a_process(record, out) for _ in range(3)] == [str(out), f"{out}-2", f"{out}-3"]
    assert find_latest_rerun(out) == tmp_path / "run-3"
    assert find_latest_rerun(tmp_path / "run-3") is None
    assert [record(out) for _ in range(3)] == [f"{out}-4", f"{out}-4/2", f"{out}-4/3"]


@pytest.mark.parametrize("name", ["traces", "torch_traces"])
def test_a_folder_with_other_files_is_used(tmp_path, name):
    (tmp_path / "run" / name).mkdir(parents=True)
    (tmp_path / "run" / name / "old.json").touch()
    assert choose_run_folder(str(tmp_path / "run"), Ranks()) == str(tmp_path / "run-2")


def test_a_restart_stays_in_the_folder_of_its_launch(tmp_path, monkeypatch):
    out = tmp_path / "run"
    in_a_process(record, out)
    monkeypatch.setenv("MASTER_PORT", "29500")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for count in range(3):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(count))
        for rank in range(2):
            assert in_a_process(choose_run_folder, str(out), Ranks(rank, rank, 2, 2)) == f"{out}-2"
        assert in_a_process(record, out, 0, 2) == f"{out}-2"
    assert {path.name for path in (tmp_path / "run-2" / "traces").iterdir()} >= {"attempt1", "attempt2"}


def test_ranks_of_which_the_first_starts_the_others_share_a_folder(tmp_path, monkeypatch):
    """As Lightning's do, and without a number in their environment."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "41234")
    out = str(tmp_path / "run")
    for rank, parent in enumerate((10, 11)):
        monkeypatch.setattr(os, "getppid", lambda parent=parent: parent)
        assert in_a_process(choose_run_folder, out, Ranks(rank, rank, 2, 2)) == out
    monkeypatch.setattr(os, "getppid", lambda: 12)
    monkeypatch.delenv("MASTER_PORT")
    assert in_a_process(choose_run_folder, out, Ranks(0, 0, 2, 2)) == f"{out}-2"


# -- kinetoscope.profile ------------------------------------------------------------------------------------------


def test_profile_in_an_unwritable_folder_records_nothing_and_logs_one_line(tmp_path, caplog):
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "run"
    with kinetoscope.profile(out, torch=False) as profiler:
        assert list(profiler.batches(range(3))) == [0, 1, 2]
        assert (profiler.state.timestamp.epoch, profiler.state.timestamp.batch) == (1, 3)  # as a training loop may read
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("Nothing is recorded; training continues. The folder")
    assert str(out) in message
    with pytest.raises(FolderNotWritableError):
        kinetoscope.profile(out, torch=False, strict=True)


def test_profile_in_an_unwritable_folder_within_another_profiler_raises_nothing(tmp_path, caplog):
    (tmp_path / "file").touch()
    with kinetoscope.profile(tmp_path / "outer", torch=False, quiet=True) as outer:
        with kinetoscope.profile(tmp_path / "file" / "run", torch=False) as inner:
            assert list(inner.batches(range(3))) == [0, 1, 2]
        assert len(list(outer.batches(range(14)))) == 14
    reasons = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert ["cannot be used" in reason for reason in reasons] == [True, False]
    assert "Another Profiler is active" in reasons[1]


def test_profile_within_another_profiler_records_nothing_and_logs_one_line(tmp_path, caplog):
    with kinetoscope.profile(tmp_path / "outer", torch=False, quiet=True) as outer:
        batches = outer.batches(range(14))
        with kinetoscope.profile(tmp_path / "inner", torch=False, system=False) as inner:
            assert list(inner.batches(range(3))) == [0, 1, 2]
            inner.step()
            with inner.epoch(), inner.eval(), inner.marker("span"):
                pass
        assert len(list(batches)) == 14
        with pytest.raises(ProfilerStateError, match="Another Profiler is active"):
            kinetoscope.profile(tmp_path / "strict", torch=False, strict=True).start()
    (message,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "Another Profiler is active" in message
    assert list((tmp_path / "outer" / "traces").glob("ep*.json.gz"))
    assert not (tmp_path / "inner" / "traces").exists()


def test_a_folder_of_traces_within_another_one_is_not_in_its_way(tmp_path):
    for outer, inner in (("a", "a/inner"), ("b/inner", "b")):
        handlers = [kinetoscope.JSONTraceHandler(str(tmp_path / name)) for name in (outer, inner)]
        with kinetoscope.Profiler(kinetoscope.cyclic_schedule(), handlers, quiet=True) as profiler:
            list(profiler.batches(range(6)))
        assert all(list((tmp_path / name).glob("ep*.json")) for name in (outer, inner))


def test_summary_and_status_print_that_a_later_run_exists(tmp_path):
    program = "import kinetoscope\nwith kinetoscope.profile('mine', torch=False) as p: list(p.batches(range(20)))"
    done = [run_program(program, folder=tmp_path) for _ in range(2)]
    assert [one.returncode for one in done] == [0, 0]
    assert "Another run is in mine. This one is recorded in mine-2." in done[1].stderr
    for command in ("summary", "status"):
        for folder, lines in (("mine", ["A later run of this name is in mine-2."]), ("mine-2", [])):
            shown = run_command(command, folder, folder=tmp_path)
            assert [line for line in shown.stderr.splitlines() if "later" in line] == lines
