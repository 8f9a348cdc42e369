"""What a process logs at its start about live folders that are already in its run's folder."""

import itertools
import logging
import os
import shutil
import socket
import threading

from kinetoscope.live.folders import LiveRun, delete_pointer, report_leftovers, write_live_run, write_pointer
from kinetoscope.training.ranks import Attempt, Ranks


def of_another_rank() -> LiveRun:
    return LiveRun(
        "run", Ranks(1, 1, 2, 2), Attempt("id", 0, os.getpid(), host=socket.gethostname()), [], token="token"
    )


def test_ranks_that_end_while_another_starts_are_no_leftovers(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    stop = threading.Event()

    def come_and_go() -> None:
        for number in itertools.count():
            if stop.is_set():
                break
            folder = tmp_path / "live" / f"{number}"
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            write_live_run(folder, of_another_rank())
            write_pointer(tmp_path, f"{number}", folder, "token")
            delete_pointer(tmp_path, f"{number}")
            shutil.rmtree(folder)

    others = threading.Thread(target=come_and_go)
    others.start()
    try:
        for _ in range(3000):
            report_leftovers(tmp_path)
    finally:
        stop.set()
        others.join()
    assert not caplog.messages


def test_leftovers_that_cannot_be_read_are_reported(tmp_path, caplog):
    (tmp_path / "live" / "rank1").mkdir(parents=True)
    (tmp_path / "live" / "rank1" / "run.json").write_text("{")
    report_leftovers(tmp_path)
    assert "cannot be read" in caplog.text
