"""Fields of processes and threads in Linux's ``/proc``."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kinetoscope.core.clock.proc import StatField, read_boot_id, read_stat

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux has it")


def test_the_fields_after_any_name_are_found():
    def read_as_named_thread():
        thread = f"self/task/{threading.get_native_id()}"
        Path(f"/proc/{thread}/comm").write_text(") Z 1 (\n2")
        return read_stat(thread)

    with ThreadPoolExecutor(1) as pool:
        fields = pool.submit(read_as_named_thread).result()
    assert fields[StatField.STATE] == "R"
    assert fields[StatField.PARENT] == str(os.getppid())
    assert int(fields[StatField.NUM_THREADS]) > 1


def test_a_process_that_does_not_exist_is_an_error():
    with pytest.raises(OSError):
        read_stat(2**22 + 1)


def test_the_id_of_the_boot_has_no_line_break():
    assert read_boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text()[:-1]
