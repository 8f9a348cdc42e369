"""Jobs of the server run one after the other, each in a process."""

import sys
from collections import deque

from kinetoscope.server.job_queue import Job, JobQueue
from support.polling import wait_for

COMMAND = [sys.executable, "-c", "import json, sys; sys.exit(f'error: {json.loads(sys.argv[1])}')"]
SLEEPING = [sys.executable, "-c", "import time; time.sleep(600)"]


def ends_of_jobs(command, names, **settings):
    """Return the status and stderr of a job for each name."""
    jobs, ends = deque(names), {}
    queue = JobQueue(
        command,
        lambda: Job([name], lambda *end: ends.update({name: end})) if jobs and (name := jobs.popleft()) else None,
        **settings,
    )
    queue.wake()
    wait_for(lambda: len(ends) == len(names))
    queue.close()
    return ends


def test_each_job_gets_the_status_and_the_errors_of_its_own_process():
    ends = ends_of_jobs(COMMAND, ["a", "b"])
    assert ends == {"a": (1, "error: ['a']"), "b": (1, "error: ['b']")}


def test_jobs_that_come_while_there_are_none_are_run():
    jobs, ends = deque(), []
    queue = JobQueue(COMMAND, lambda: jobs.popleft() if jobs else None)
    for number in range(3):
        jobs.append(Job([str(number)], lambda status, errors: ends.append(errors)))
        queue.wake()
        wait_for(lambda number=number: len(ends) == number + 1)
    queue.close()
    assert ends == ["error: ['0']", "error: ['1']", "error: ['2']"]


def test_too_slow_process_is_killed_and_an_unstartable_one_has_no_status():
    assert ends_of_jobs(SLEEPING, ["slow"], timeout_s=0.2) == {"slow": (None, "")}
    assert ends_of_jobs(["/no such command"], ["none"]) == {"none": (None, "")}
