import os
import stat
from pathlib import Path

import pytest

from kinetoscope.errors import FolderNotWritableError
from kinetoscope.writing.atomic_file import atomic_file, check_writable


def test_a_file_appears_when_it_is_complete_and_not_before(tmp_path):
    path = tmp_path / "new" / "folder" / "file"
    with atomic_file(path) as stream:
        stream.write(b"half")
        assert not path.exists()
        stream.write(b" and half")
    assert path.read_bytes() == b"half and half"
    assert os.listdir(path.parent) == ["file"]


def test_an_error_leaves_what_was_there_before_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as stream:
        stream.write(b"new")
        1 / 0
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_its_mode_obeys_the_umask(tmp_path):
    before = os.umask(0o022)
    try:
        with atomic_file(tmp_path / "file"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_a_folder_that_is_a_file_is_refused_by_name(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FolderNotWritableError, match="file/below"):
        check_writable(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_access_is_refused_by_name(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(FolderNotWritableError, match=str(tmp_path)):
        check_writable(tmp_path)


def test_a_read_only_file_system_is_refused_by_name():
    with pytest.raises(FolderNotWritableError, match="/proc"):
        check_writable(Path("/proc/kinetoscope"))
