"""Pipes and devices are written into, and never replaced."""

import os
import stat
import threading

from kinetoscope.core.paths.atomic_file import atomic_file


def test_a_pipe_is_written_into_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    with atomic_file(pipe) as stream:
        stream.write(b"trace")
    reader.join(10)
    assert read == [b"trace"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
