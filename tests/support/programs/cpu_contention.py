"""A loop that computes, in some steps while twenty other processes compute on the same core.

Arguments: the run's folder, a file for the moments at which steps ended, how many steps, and those with neighbours.
"""

import json
import mmap
import os
import sys
import time
from pathlib import Path

import kinetoscope

NUM_NEIGHBOURS, WORK_S = 20, 0.01


class Neighbours:
    """Processes that compute while requested."""

    def __init__(self):
        self._are_busy, (self._read, self._write) = mmap.mmap(-1, 1), os.pipe()
        self._parent, self._pids = os.getpid(), []
        for _ in range(NUM_NEIGHBOURS):
            pid = os.fork()
            if not pid:
                self._compute()
            self._pids.append(pid)

    def _compute(self):
        os.close(self._write)  # so that the parent's end is seen
        while os.read(self._read, 1):
            while self._are_busy[0] and os.getppid() == self._parent:
                pass
        os._exit(0)

    def begin(self):
        self._are_busy[0] = 1
        os.write(self._write, b"." * NUM_NEIGHBOURS)

    def end(self):
        self._are_busy[0] = 0

    def close(self):
        self.end()
        os.close(self._write)
        for pid in self._pids:
            os.waitpid(pid, 0)


def compute():
    until = time.thread_time() + WORK_S
    while time.thread_time() < until:
        pass


def main(out, times, num_steps, crowded):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    neighbours, ended_ns = Neighbours(), []
    with kinetoscope.profile(out, torch=False, system=False, slow_steps=True, quiet=True) as profiler:
        for step in profiler.batches(range(int(num_steps))):
            if step in json.loads(crowded):
                neighbours.begin()
            compute()
            neighbours.end()
            ended_ns.append(time.monotonic_ns())
    neighbours.close()
    Path(times).write_text(json.dumps(ended_ns))


if __name__ == "__main__":
    main(*sys.argv[1:])
