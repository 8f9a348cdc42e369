"""Log messages of a starting process about spools that are already in its run's folder."""

import contextlib
import itertools
import logging
import os
import shutil
import socket
import threading
from pathlib import Path

from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.spool.folders import SpoolOwner, delete_pointer, warn_of_unsaved_data, write_pointer, write_spool_owner

NO_PROCESS = 2**22 + 1
"""More than Linux numbers processes to."""


def of_another_rank() -> SpoolOwner:
    return SpoolOwner(
        "run", Ranks(1, 1, 2, 2), Attempt("id", 0, os.getpid(), host=socket.gethostname()), [], token="token"
    )


def test_ranks_that_end_while_another_starts_are_no_leftovers(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    stop = threading.Event()
    made: list[Path] = []

    def come_and_go() -> None:
        for number in itertools.count():
            if stop.is_set():
                break
            folder = tmp_path / "live" / f"{number}"
            while not folder.exists():
                with contextlib.suppress(FileNotFoundError):  # the other deletes ``live`` while it is empty
                    folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            made.append(folder)
            write_spool_owner(folder, of_another_rank())
            write_pointer(tmp_path, f"{number}", folder, "token")
            delete_pointer(tmp_path, f"{number}")
            shutil.rmtree(folder)

    others = threading.Thread(target=come_and_go)
    others.start()
    num_reports = 0
    try:
        # On a busy machine the other thread may get little of the GIL.
        while num_reports < 3000 or (len(made) <= 100 and others.is_alive()):
            warn_of_unsaved_data(tmp_path)
            num_reports += 1
    finally:
        stop.set()
        others.join()
    assert not caplog.messages
    assert len(made) > 100


def leave(run_folder, rank):
    """Make the spool of a killed rank."""
    attempt = Attempt("id", 0, NO_PROCESS, host=socket.gethostname())
    folder = run_folder / "live" / f"{rank}"
    folder.mkdir(parents=True, mode=0o700)
    write_spool_owner(folder, SpoolOwner("run", Ranks(rank, rank, 16, 16), attempt, [], token="token"))


def test_all_killed_ranks_are_reported_in_one_line(tmp_path, caplog):
    run = tmp_path / "my run"
    leave(run, 3)
    warn_of_unsaved_data(run)
    leave(run, 1)
    warn_of_unsaved_data(run)
    for rank in range(4, 16):
        leave(run, rank)
    warn_of_unsaved_data(run)
    template = (
        "%s of an earlier attempt %s killed and left what %s had not saved. To make a trace of it: kinetoscope recover"
    )
    subjects = [("Rank 3", "was", "it"), ("Ranks 1, 3", "were", "they")]
    subjects.append(("Ranks 1, 3, 4, 5, 6, 7, 8, 9 and 6 more", "were", "they"))
    assert caplog.messages == [f"{template % words} '{run}'" for words in subjects]


def test_leftovers_that_cannot_be_read_are_reported(tmp_path, caplog):
    (tmp_path / "live" / "rank1").mkdir(parents=True)
    (tmp_path / "live" / "rank1" / "run.json").write_text("{")
    warn_of_unsaved_data(tmp_path)
    assert "is unreadable" in caplog.text
