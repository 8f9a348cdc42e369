"""spool/owner_lock.py: whether the owner of a spool folder is alive, as other processes and the owner see it."""

import errno
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kinetoscope.core.job.ranks import Attempt
from kinetoscope.spool.owner_lock import OwnerLock, OwnerState, read_owner_state

HERE, NO_PROCESS = socket.gethostname(), 2**22 + 1


def process(host: str, pid: int) -> Attempt:
    return Attempt("run", 0, pid, host=host)


ASK = """
import sys
from pathlib import Path
from kinetoscope.spool.owner_lock import read_owner_state
from kinetoscope.core.job.ranks import Attempt
print(read_owner_state(Path(sys.argv[1]), Attempt("run", 0, int(sys.argv[3]), host=sys.argv[2])).name)
"""

HOLD = """
import sys, time
from pathlib import Path
from kinetoscope.spool.owner_lock import OwnerLock
lock = OwnerLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def ask_from_another_process(folder: Path, host: str = HERE, pid: int = NO_PROCESS) -> str:
    command = [sys.executable, "-c", ASK, str(folder), host, str(pid)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.fixture
def lock(tmp_path):
    lock = OwnerLock(tmp_path)
    yield lock
    lock.release()


@pytest.fixture
def left(tmp_path):
    """The folder of a process that was killed."""
    owner = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    owner.stdout.readline()
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    return tmp_path


def test_the_holder_of_a_lock_is_alive_whatever_its_pid(lock, tmp_path):
    assert ask_from_another_process(tmp_path, pid=NO_PROCESS) == "ALIVE"
    assert ask_from_another_process(tmp_path, host="another machine") == "ALIVE"


def test_owner_may_query_itself_and_keeps_its_lock(lock, tmp_path):
    assert read_owner_state(tmp_path, process(HERE, NO_PROCESS)) is OwnerState.ALIVE
    assert ask_from_another_process(tmp_path) == "ALIVE"


def test_a_killed_owner_is_dead_even_if_another_process_has_its_pid(left):
    assert read_owner_state(left, process(HERE, os.getpid())) is OwnerState.DEAD
    assert ask_from_another_process(left, host="another container") == "DEAD"


def test_an_owner_that_has_given_its_lock_back_is_dead(lock, tmp_path):
    lock.release()
    assert read_owner_state(tmp_path, process(HERE, os.getpid())) is OwnerState.DEAD


def test_a_forked_child_neither_holds_nor_releases_the_lock(lock, tmp_path):
    child = os.fork()
    if child == 0:
        state = read_owner_state(tmp_path, process(HERE, NO_PROCESS))
        lock.release()
        os._exit(state.value)
    assert OwnerState(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) is OwnerState.ALIVE
    assert ask_from_another_process(tmp_path) == "ALIVE"


def test_a_child_that_outlives_its_killed_parent_does_not_keep_the_lock(tmp_path):
    read, write = os.pipe()
    parent = os.fork()
    if parent == 0:
        OwnerLock(tmp_path)
        child = os.fork()
        if child == 0:
            signal.pause()
        os.write(write, child.to_bytes(8))
        os._exit(0)
    child = int.from_bytes(os.read(read, 8))
    os.waitpid(parent, 0)
    try:
        assert read_owner_state(tmp_path, process(HERE, child)) is OwnerState.DEAD
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(read)
        os.close(write)


def test_a_lock_lost_by_copying_the_folder_is_taken_again(lock, tmp_path):
    shutil.copytree(tmp_path, tmp_path / "copy")
    assert ask_from_another_process(tmp_path) == "DEAD"
    lock.renew()
    assert ask_from_another_process(tmp_path) == "ALIVE"


def test_a_folder_without_a_lock_is_judged_by_the_pid_on_this_machine_only(tmp_path):
    assert read_owner_state(tmp_path, process(HERE, os.getpid())) is OwnerState.ALIVE
    assert read_owner_state(None, process(HERE, NO_PROCESS)) is OwnerState.DEAD
    assert read_owner_state(tmp_path, process("another machine", os.getpid())) is OwnerState.UNKNOWN


def test_the_lock_of_another_machine_that_is_free_says_nothing(left):
    (left / "owner.lock").write_text("the boot id of another machine\n")
    assert read_owner_state(left, process("another machine", os.getpid())) is OwnerState.UNKNOWN
    assert read_owner_state(left, process(HERE, os.getpid())) is OwnerState.DEAD  # this machine, rebooted since


def test_pid_is_checked_on_a_file_system_without_locks(tmp_path, monkeypatch):
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    lock = OwnerLock(tmp_path)
    assert read_owner_state(tmp_path, process(HERE, os.getpid())) is OwnerState.ALIVE
    assert read_owner_state(tmp_path, process(HERE, NO_PROCESS)) is OwnerState.DEAD
    lock.release()


def test_a_lock_file_that_is_a_link_or_a_pipe_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "owner.lock")
    assert read_owner_state(tmp_path, process("another machine", 1)) is OwnerState.UNKNOWN
    (tmp_path / "owner.lock").unlink()
    (tmp_path / "owner.lock").symlink_to("/etc/passwd")
    assert read_owner_state(tmp_path, process("another machine", 1)) is OwnerState.UNKNOWN


def test_the_lock_of_another_machine_says_nothing_where_no_machine_has_a_boot_id(left, monkeypatch):
    monkeypatch.setattr("kinetoscope.spool.owner_lock.read_boot_id", lambda: "")  # as on macOS
    (left / "owner.lock").write_bytes(b"")
    assert read_owner_state(left, process("another machine", os.getpid())) is OwnerState.UNKNOWN
    assert read_owner_state(left, process(HERE, os.getpid())) is OwnerState.DEAD
