"""The spool folder of this process, with the real recorder, and files that only belong to an unsaved cycle."""

import os
import shutil
import socket
import tempfile

import pytest

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.recording.markers.native_recorder import NativeRecorder
from kinetoscope.spool import spool_folder
from kinetoscope.spool.folders import SpoolOwner, find_contributed_files, find_spool_folder, find_spool_folders
from kinetoscope.spool.spool_folder import SpoolFolder, TemporaryFiles
from kinetoscope.spool.window_log import read_windows

ATTEMPT = Attempt("id", 0, os.getpid(), start="20260101T000000-1-0123abcd", host=socket.gethostname())
OWNER = SpoolOwner("run", Ranks(), ATTEMPT, [])


@pytest.fixture
def spool(tmp_path):
    """A spool folder whose writer thread is this one."""
    announced = []

    def announce(run_file):
        announced.append(run_file)
        return announced.clear

    spool = SpoolFolder(NativeRecorder(), lambda name, job: job(), lambda is_short: None, announce)
    spool.announced = announced
    yield spool
    spool.close(is_saved=True)


def start(spool, run_folder):
    spool.open(run_folder, OWNER, ATTEMPT, 1 << 20)
    return spool.path


def test_folder_is_found_while_its_data_is_unsaved_and_deleted_after(tmp_path, spool):
    folder = start(spool, tmp_path)
    assert [*find_spool_folders(tmp_path)] == [folder] == [find_spool_folder(tmp_path, ATTEMPT.start)]
    assert spool.announced
    spool.log_opened(3, Timestamp(batch=5))
    spool.log_epoch(1_500, 2)
    spool.log_active(7)
    spool.log_closed(0, 1 << 60, Timestamp(batch=9), num_records=4)
    spool.close(is_saved=False)
    assert not spool.announced
    ((window,), damages) = read_windows(folder)
    assert (window.cycle, window.first_active, window.epochs, window.num_records) == (3, 7, [(1_500, 2)], 4)
    assert (window.is_saved, damages) == (False, [])
    spool.log_saved(0)
    assert read_windows(folder)[0][0].is_saved
    spool.close(is_saved=True)
    assert not os.listdir(tmp_path)


def test_folder_that_cannot_be_made_is_reported_once_and_left_alone(tmp_path, spool, caplog):
    (tmp_path / "live").write_text("a file")
    assert start(spool, tmp_path) is None
    spool.log_opened(0, Timestamp())
    (message,) = caplog.messages
    assert f"The spool folder {ATTEMPT.spool_folder(tmp_path)} cannot be used: " in message
    assert (tmp_path / "live").read_text() == "a file"


def test_folder_that_disappears_is_reported_once(tmp_path, spool, caplog):
    folder = start(spool, tmp_path)
    shutil.rmtree(folder)
    for cycle in range(3):
        spool.log_opened(cycle, Timestamp())
    (message,) = caplog.messages
    assert message.startswith(f"The spool folder {folder} cannot be used: No such file or directory. Until it can,")


def test_next_to_a_network_file_system_the_folder_is_a_temporary_one(tmp_path, spool, monkeypatch):
    monkeypatch.setattr(spool_folder, "is_on_network", lambda path: True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run_folder = tmp_path / "run"
    folder = start(spool, run_folder)
    assert folder.parent == tmp_path
    assert [*find_spool_folders(run_folder)] == [folder] == [find_spool_folder(run_folder, ATTEMPT.start)]
    spool.close(is_saved=True)
    assert not folder.exists()
    assert not [*find_spool_folders(run_folder)]
    assert not os.listdir(run_folder / "live")


@pytest.mark.parametrize("has_spool", [True, False])
def test_files_of_a_cycle_are_kept_after_their_owner_deletes_them(tmp_path, spool, has_spool, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spool_path = start(spool, tmp_path / "run") if has_spool else None
    files, source = TemporaryFiles(spool), tmp_path / "source.json"
    kept = []
    for content in ("first", "second"):
        source.write_text(content)
        kept.append(files.keep(source, 2))
        source.unlink()
    paths = [find_path() for find_path in kept]
    assert [path.read_text() for path in paths] == ["first", "second"]
    assert {path.parent for path in paths} == {files.folder(2)}
    (files.folder(2) / ".unfinished").touch()
    (files.folder(2) / "folder").mkdir()
    holder = files.folder(2).parents[1]
    assert (holder == spool_path) is has_spool
    assert sorted(find_contributed_files(holder, 2)) == sorted(paths)
    assert find_contributed_files(holder, 3) == []
    files.close()
    assert paths[0].exists() is has_spool
