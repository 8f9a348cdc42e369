"""A folder from another person: whatever its files name, nothing outside is read, written or deleted."""

import contextlib
import os

import pytest

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.errors import KinetoscopeError, UnsafePathError
from support.open_files import open_files_below

SECRET = b"somebody's own"


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_bytes(SECRET)
    return folder


@pytest.fixture
def run(tmp_path, outside):
    """A run's folder with links out of it."""
    folder = tmp_path / "run"
    (folder / "real" / "below").mkdir(parents=True)
    (folder / "real" / "file").write_bytes(b"here")
    (folder / "link").symlink_to(outside)
    (folder / "real" / "link").symlink_to(outside / "file")
    (folder / "dangling").symlink_to(outside / "not-there")
    return RunFolder(folder)


OPERATIONS = {
    "open": lambda run, name: run.open(name).close(),
    "append": lambda run, name: run.open(name, "ab").close(),
    "create": lambda run, name: run.open(name, "xb").close(),
    "read": lambda run, name: run.read(name),
    "write": lambda run, name: run.write(f"{name}/file" if name == "link" else name, b"x"),
    "names": lambda run, name: run.names(name),
    "make_folder": lambda run, name: run.make_folder(name),
    "path_of": lambda run, name: run.path_of(name),
    "delete": lambda run, name: run.delete(f"{name}/file"),
    "delete_folder": lambda run, name: run.delete_folder(name),
    "delete_empty": lambda run, name: run.delete_empty(name),
}
NAMES = [
    "",
    "/etc/passwd",
    "..",
    "../outside/file",
    "real/../../outside/file",
    "a\0b",
    "a\nb",
    "a\x1b[2J",
    "a\x85b",
    "\ud800",
]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_absolute_parent_or_undecodable_name_is_refused(run, operation, name):
    with pytest.raises(UnsafePathError, match="is not used"):
        OPERATIONS[operation](run, name)


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - {"write", "create", "delete", "delete_empty"}))
@pytest.mark.parametrize("name", ["link", "dangling", "real/link", "link/file"])
def test_a_link_is_not_followed_at_any_place_in_the_name(run, outside, operation, name):
    with pytest.raises(UnsafePathError, match="symbolic link"):
        OPERATIONS[operation](run, name)
    assert sorted(os.listdir(outside)) == ["file"]


@pytest.mark.parametrize("operation", ["write", "create", "delete", "delete_empty", "delete_folder", "make_folder"])
def test_nothing_is_changed_through_a_link_to_a_folder(run, outside, operation):
    (outside / "empty").mkdir()
    with pytest.raises(OSError, match="link"):
        OPERATIONS[operation](run, "link/empty")
    assert sorted(os.listdir(outside)) == ["empty", "file"]
    assert (outside / "file").read_bytes() == SECRET


def test_a_file_replaces_a_link_and_the_links_target_is_unchanged(run, outside):
    run.write("real/link", b"new")
    assert run.read("real/link") == b"new"
    assert (outside / "file").read_bytes() == SECRET


def test_a_link_is_deleted_and_its_target_stays(run, outside):
    run.delete("link")
    run.delete("real/link")
    assert (outside / "file").read_bytes() == SECRET
    assert run.names() == ["dangling", "real"]


def test_a_folder_is_deleted_with_its_content_but_not_the_targets_of_its_links(run, outside):
    (run.path / "real" / "below" / "link").symlink_to(outside)
    run.delete_folder("real")
    assert (outside / "file").read_bytes() == SECRET
    assert not (run.path / "real").exists()


def test_the_path_of_the_run_folder_may_contain_links(run, tmp_path):
    (tmp_path / "mine").symlink_to(run.path)
    mine = RunFolder(tmp_path / "mine")
    assert mine.read("real/file") == b"here"
    assert mine.name_of(tmp_path / "mine" / "real" / "file") == "real/file"


@pytest.mark.parametrize("path", ["outside/file", "run/link/file", "run/../outside", "run2"])
def test_a_path_outside_has_no_name_in_the_folder(run, tmp_path, path):
    with pytest.raises(UnsafePathError, match="not in the folder"):
        run.name_of(tmp_path / path)


def test_files_are_made_read_appended_to_renamed_and_deleted(run):
    path = run.make_folder("a/b")
    run.write("a/b/c", b"1")
    with run.open("a/b/c", "ab") as stream:
        stream.write(b"2")
    assert path == run.path / "a" / "b"
    assert (path / "c").read_bytes() == b"12"
    run.rename("a/b/c", "a/b/d")
    assert run.names("a/b") == ["d"]
    assert run.is_file("a/b/d")
    run.delete("a/b/d")
    run.delete("a/b/d")
    run.delete_empty("a/b")
    assert run.names("a") == []


def test_a_named_pipe_is_no_file_and_is_not_waited_for(run):
    os.mkfifo(run.path / "pipe")
    for operation in ("read", "append"):
        with pytest.raises(OSError, match=r"pipe|No such device"):
            OPERATIONS[operation](run, "pipe")
    assert not run.is_file("pipe")


def test_a_file_that_has_a_second_name_is_read_but_not_changed(run, outside):
    os.link(outside / "file", run.path / "second")
    assert run.read("second") == SECRET
    with pytest.raises(UnsafePathError, match="hard link"):
        run.open("second", "ab")


def test_an_empty_sparse_file_of_terabytes_is_not_read(run):
    with (run.path / "huge").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(UnsafePathError, match="too large"):
        run.read("huge")


@pytest.mark.parametrize("operation", ["open", "append", "read", "write", "delete_folder", "delete_empty"])
@pytest.mark.parametrize("name", [".", "./", "././."])
def test_the_run_folder_itself_cannot_be_opened_or_deleted(run, operation, name):
    with pytest.raises(UnsafePathError, match="folder itself"):
        OPERATIONS[operation](run, name)
    assert run.names(name) == run.names()


def test_a_name_too_long_for_the_file_system_is_an_error_of_the_file_system(run):
    with pytest.raises(OSError, match="File name too long"):
        run.read("x" * 5000)


def test_a_missing_file_has_no_status_and_no_names(run):
    assert run.status("nothing") is None
    assert run.status("nothing/below") is None
    assert run.names("nothing") == []
    assert run.path_of("nothing/below") == run.path / "nothing" / "below"
    with pytest.raises(FileNotFoundError):
        run.read("nothing")


def test_refusal_is_a_kinetoscope_error_and_an_os_error():
    assert issubclass(UnsafePathError, KinetoscopeError)
    assert issubclass(UnsafePathError, OSError)


def test_no_descriptor_stays_open(run):
    for name in [*NAMES, "link", "real/file", "real/link", "nothing/there", "dangling"]:
        for operation in ("open", "names", "path_of", "append"):
            with contextlib.suppress(OSError):
                OPERATIONS[operation](run, name)
    assert open_files_below(run.path.parent) == []
