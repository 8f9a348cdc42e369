"""Kinds of paths: an error that leaves the kind unknown is raised, also where `pathlib` answers False."""

import os

import pytest

from kinetoscope.cli.paths import require_replaceable
from kinetoscope.core.paths.attempt_folders import find_attempt_folders
from kinetoscope.core.paths.file_kinds import is_folder, is_regular_file, path_exists
from kinetoscope.merge.trace_output import is_pipe_or_device


def test_kinds_are_those_of_the_system(tmp_path):
    (tmp_path / "file").write_text("x")
    os.symlink("loop", tmp_path / "loop")
    for path in (tmp_path, tmp_path / "file", tmp_path / "none", tmp_path / "file" / "below", tmp_path / "loop"):
        assert (is_folder(path), is_regular_file(path)) == (os.path.isdir(path), os.path.isfile(path))
        assert path_exists(path) == os.path.exists(path)
    assert not path_exists(tmp_path / "a\0b")


def require_one_free(path):
    require_replaceable([path], force=False)


LOOKS = [is_folder, is_regular_file, path_exists, find_attempt_folders, is_pipe_or_device, require_one_free]


@pytest.mark.parametrize("look", LOOKS)
def test_path_of_unknown_type_does_not_count_as_free(look, tmp_path):
    with pytest.raises(OSError, match="File name too long"):
        look(tmp_path / ("x" * 1000))
