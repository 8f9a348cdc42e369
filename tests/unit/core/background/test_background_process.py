"""A background process: its output, and its end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from kinetoscope.core.background.background_process import BackgroundProcess
from support.polling import wait_for

LONG_S = 60


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_ended(pid):
    wait_for(lambda: not is_running(pid))


def test_command_output_is_kept_on_request():
    ends = []
    process = BackgroundProcess(lambda *end: ends.append(end), keeps_output=True)
    process.start([sys.executable, "-c", "import sys; print('found'); print('lost', file=sys.stderr); sys.exit(3)"])
    assert process.wait(time.monotonic() + LONG_S)
    assert (process.output, ends) == ("found\n", [(3, "lost")])


def test_a_process_that_is_ended_is_gone_and_another_one_can_be_started(monkeypatch):
    monkeypatch.setattr("kinetoscope.core.background.background_process._KILL_WAIT_S", LONG_S)
    ends = []
    process = BackgroundProcess(lambda *end: ends.append(end))
    process.kill_and_wait()
    process.start([sys.executable, "-c", "import time; time.sleep(600)"])
    pid = process.pid
    assert is_running(pid)
    process.kill_and_wait()
    assert not Path(f"/proc/{pid}").exists(), "it was not waited for"
    assert (ends, process.pid, process.is_running) == ([], 0, False)
    process.start([sys.executable, "-c", ""])
    assert process.wait(time.monotonic() + LONG_S)
    assert ends == [(0, "")]


def test_process_exit_does_not_wait_for_a_started_process_and_leaves_nothing():
    started = "import subprocess, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    process = BackgroundProcess(print, keeps_output=True)
    process.start([sys.executable, "-c", started])
    children = psutil.Process(process.pid).children
    sleeps = wait_for(lambda: [child for child in children() if child.name() == "sleep"])
    pid = process.pid
    process.kill_and_wait()
    assert sleeps[0].is_running()
    assert not psutil.pid_exists(pid), "not even as a zombie"
    sleeps[0].kill()


TRAINING_ELSEWHERE = """
import os, sys, time
from kinetoscope.core.background.background_process import BackgroundProcess
import helping
os.chdir("elsewhere")
process = BackgroundProcess(lambda status, errors: None, keeps_output=True)
process.start([sys.executable, "-c", "import helping; print(helping.__file__)"])
assert process.wait(time.monotonic() + 60)
print(process.output)
"""


def test_a_process_imports_from_where_the_training_does_that_has_changed_its_folder(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "lib" / "helping.py").write_text("")
    path = os.pathsep.join(["lib", *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", TRAINING_ELSEWHERE]
    printed = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True, text=True
    ).stdout
    assert printed.split() == [str(tmp_path / "lib" / "helping.py")]


def test_nothing_is_imported_from_the_folder_in_which_a_command_is_started(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("print('a stranger')")
    monkeypatch.chdir(tmp_path)
    process = BackgroundProcess(lambda status, errors: None, keeps_output=True)
    process.start([sys.executable, "-c", "import json; print(json.dumps('ours'))"])
    assert process.wait(time.monotonic() + LONG_S)
    assert process.output == '"ours"\n'


SIDE = """
import os, time
from kinetoscope.core.background.background_process import exit_when_detached
exit_when_detached()
with open("pid.part", "w") as file:
    file.write(str(os.getpid()))
os.rename("pid.part", "pid")
time.sleep(600)
"""
TRAINING = f"""
import sys, time
from kinetoscope.core.background.background_process import BackgroundProcess
process = BackgroundProcess(print)
process.start([sys.executable, "-c", {SIDE!r}])
time.sleep(600)
"""


def test_a_side_process_ends_when_training_is_killed(tmp_path):
    training = subprocess.Popen([sys.executable, "-c", TRAINING], cwd=tmp_path)
    wait_for((tmp_path / "pid").exists)
    pid = int((tmp_path / "pid").read_text())
    try:
        training.send_signal(signal.SIGKILL)
        training.wait()
        wait_until_ended(pid)
    finally:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
