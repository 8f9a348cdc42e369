"""If a signal arrives while space for records is allocated, such as a timer's, the spool folder is still used."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("kinetoscope._native", reason="the native recorder was not built")
SOURCE = Path(__file__).parent / "interrupted_allocation.c"
RECORDING = """
import sys
from kinetoscope._native import Recorder, Span

class ThisRecorder(Recorder):
    def describe_thread(self):
        return 1, "main", True

recorder = ThisRecorder(None)
recorder.set_folder(sys.argv[1], 0, 1 << 26)
span = Span(recorder, 0, 1)
recorder.open_window()
recorder.action = 1
for _ in range(20_000):  # into several chunks
    with span:
        pass
for _ in range(500):
    span.begin()  # into a track that grows
[(*_, num_dropped, chunks)] = recorder.take_at_close()
print(recorder.spool_errno, num_dropped, sum(chunk.header[:7] == b"KSCHUNK" for chunk in chunks))
"""


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """The environment of a process whose allocations are interrupted."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("interrupted") / "interrupted.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return os.environ | {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()}


def recorded(folder: Path, environment: dict[str, str]) -> list[int]:
    """Return the errno of the failure, the number of dropped records, and the number of chunks."""
    command = [sys.executable, "-c", RECORDING, str(folder)]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout
    return list(map(int, printed.split()))


def test_an_interrupted_allocation_is_tried_again(tmp_path, interrupted):
    spool_errno, num_dropped, num_chunks = recorded(tmp_path, interrupted)
    assert (spool_errno, num_dropped) == (0, 0)
    assert num_chunks > 1


def test_recording_continues_in_memory_if_every_try_is_interrupted(tmp_path, interrupted):
    spool_errno, num_dropped, num_chunks = recorded(tmp_path, interrupted | {"ALWAYS": "1"})
    assert (spool_errno, num_dropped) == (errno.EINTR, 0)
    assert num_chunks > 1
