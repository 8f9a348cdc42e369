import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import kinetoscope.core.paths.atomic_file as partial_files
from kinetoscope.core.paths.atomic_file import (
    atomic_file,
    check_writable,
    partial_file,
    remove_partials,
    temporary_folder,
)
from kinetoscope.errors import FolderNotWritableError


def test_a_file_appears_when_it_is_complete_and_not_before(tmp_path):
    path = tmp_path / "new" / "folder" / "file"
    with atomic_file(path) as stream:
        stream.write(b"half")
        assert not path.exists()
        stream.write(b" and half")
    assert path.read_bytes() == b"half and half"
    assert os.listdir(path.parent) == ["file"]


def test_after_an_error_only_the_earlier_files_are_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as stream:
        stream.write(b"new")
        1 / 0
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_ctrl_c_just_after_the_file_was_made_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_):
        assert len(os.listdir(tmp_path)) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(partial_files.fcntl, "flock", interrupt)
    with pytest.raises(KeyboardInterrupt), atomic_file(tmp_path / "file"):
        pass
    assert os.listdir(tmp_path) == []


def test_a_process_that_ends_removes_a_file_that_another_thread_is_just_making(tmp_path):
    program = textwrap.dedent("""
        import fcntl, os, sys, threading
        from kinetoscope.core.paths import atomic_file as partial_files

        made, forever = threading.Event(), threading.Event()
        fcntl.flock = lambda *_: (made.set(), forever.wait())
        partial_file = partial_files.partial_file(partial_files.Path(sys.argv[1]))
        threading.Thread(target=partial_file.__enter__, daemon=True).start()
        made.wait()
        partial_files.abandon_partials()
        os._exit(0)
    """)
    subprocess.run([sys.executable, "-c", program, tmp_path / "file"], check=True, timeout=60)
    assert os.listdir(tmp_path) == []


def test_the_mode_of_a_file_follows_the_umask(tmp_path):
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


def start(program, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process):
    process.kill()
    process.wait()
    process.stdout.close()


WRITER = """
    import sys, time
    from pathlib import Path
    from kinetoscope.core.paths.atomic_file import atomic_file
    from kinetoscope.core.paths.atomic_file import temporary_folder
    with atomic_file(Path(sys.argv[1]) / "trace.json") as stream, temporary_folder(Path(sys.argv[1])) as folder:
        stream.write(b"half")
        stream.flush()
        (folder / "half").write_bytes(b"half")
        print("ready", flush=True)
        time.sleep(600)
"""


def test_partial_files_of_a_killed_writer_are_removed_and_of_a_live_one_kept(tmp_path):
    living, dead = start(WRITER, tmp_path), start(WRITER, tmp_path)
    assert len(os.listdir(tmp_path)) == 4
    kill(dead)
    try:
        remove_partials(tmp_path)
        assert len(os.listdir(tmp_path)) == 2
    finally:
        kill(living)
    remove_partials(tmp_path)
    assert os.listdir(tmp_path) == []


def test_files_that_this_process_writes_stay(tmp_path):
    with atomic_file(tmp_path / "file") as stream:
        remove_partials(tmp_path)
        stream.write(b"whole")
    with temporary_folder(tmp_path) as folder:
        remove_partials(tmp_path)
        assert folder.exists()
    assert (tmp_path / "file").read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["file"]


def test_another_machines_leftovers_are_deleted_only_a_day_after_their_last_write(tmp_path):
    others = [tmp_path / f".trace.json.0000000{number}-00000000.partial" for number in range(2)]
    for path in others:
        path.touch()
    a_day_ago = time.time() - 86_500
    os.utime(others[0], (a_day_ago, a_day_ago))
    remove_partials(tmp_path)
    assert not others[0].exists()
    assert others[1].exists()


def test_without_locks_age_decides(tmp_path, monkeypatch):
    def no_locks(descriptor, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(partial_files.fcntl, "flock", no_locks)
    with partial_file(tmp_path / "file") as partial:
        remove_partials(tmp_path)
        assert partial.exists()
        os.utime(partial, (0, 0))
        remove_partials(tmp_path)
        assert not partial.exists()


def test_on_a_system_without_locks_age_decides(tmp_path, monkeypatch):
    monkeypatch.setattr(partial_files, "fcntl", None)
    with partial_file(tmp_path / "ours") as partial, temporary_folder(tmp_path) as folder:
        remove_partials(tmp_path)
        assert partial.exists()
        assert folder.exists()
        os.utime(partial, (0, 0))
        remove_partials(tmp_path)
        assert not partial.exists()
    assert os.listdir(tmp_path) == []


def test_files_of_other_programs_stay_whatever_their_names(tmp_path):
    names = [".download.partial", "trace.json.0123abcd-0123abcd.partial", ".trace.json", ".x.12-0.partial"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / ".link.00000000-00000000.partial").symlink_to(tmp_path / ".trace.json")
    os.mkfifo(tmp_path / ".pipe.00000000-00000000.partial")
    remove_partials(tmp_path)
    assert len(os.listdir(tmp_path)) == len(names) + 2


def test_missing_folder_or_a_file_instead_raises_no_error(tmp_path):
    (tmp_path / "file").touch()
    remove_partials(tmp_path / "file")
    remove_partials(tmp_path / "missing")


def test_many_writers_and_many_cleanups_do_not_disturb_each_other(tmp_path):
    program = """
        import sys
        from pathlib import Path
        from kinetoscope.core.paths.atomic_file import atomic_file
        from kinetoscope.core.paths.atomic_file import remove_partials, temporary_folder
        folder = Path(sys.argv[1])
        print("ready", flush=True)
        for number in range(300):
            remove_partials(folder)
            with atomic_file(folder / f"{sys.argv[2]}-{number}"), temporary_folder(folder) as inside:
                (inside / "file").touch()
    """
    processes = [start(program, tmp_path, number) for number in range(3)]
    for process in processes:
        process.stdout.close()
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    assert len(os.listdir(tmp_path)) == 900


def test_a_name_as_long_as_names_may_be_can_be_written(tmp_path):
    path = tmp_path / ("ü" * 127)
    with atomic_file(path) as stream:
        stream.write(b"whole")
    assert path.read_bytes() == b"whole"


def test_a_temporary_folder_is_for_its_user_alone_and_gone_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(partial_files.tempfile, "tempdir", str(tmp_path))
    with temporary_folder() as folder:
        assert folder.parent == tmp_path
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "file").touch()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_temporary_files_of_a_killed_process_are_removed_at_the_next_use(tmp_path, sign):
    writer = start(WRITER, tmp_path)
    writer.send_signal(sign)
    kill(writer)
    program = """
        import sys, tempfile
        tempfile.tempdir = sys.argv[1]
        from kinetoscope.core.paths.atomic_file import temporary_folder
        with temporary_folder():
            print("ready", flush=True)
    """
    kill(start(program, tmp_path))
    assert not [name for name in os.listdir(tmp_path) if "trace" in name]


def test_the_files_of_a_dead_parent_stay_until_its_forked_child_ends(tmp_path):
    program = """
        import os, sys, time
        from pathlib import Path
        from kinetoscope.core.paths.atomic_file import partial_file
        with partial_file(Path(sys.argv[1]) / "file"):
            if os.fork():
                os._exit(0)
            print("ready", flush=True)
            sys.stdin.read()
            os._exit(0)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "ready\n"
        remove_partials(tmp_path)
        assert len(os.listdir(tmp_path)) == 1
        parent.stdin.close()
        parent.stdout.read()  # at its end once the child has ended
    remove_partials(tmp_path)
    assert os.listdir(tmp_path) == []
