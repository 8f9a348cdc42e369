"""A process is killed at any moment: its pulse has all its steps, and says so if one of them was being written."""

import os
import random
import time

import pytest

from kinetoscope.pulse.pulses import find_pulses
from support.fork_server import KINETOSCOPE_MODULES, start_forked

NUM_KILLS = int(os.environ.get("KINETOSCOPE_KILLS", "4"))

# A page tells how many steps have ended: what is written to it survives the process.
TRAIN = """
import mmap, os, struct, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
folder = sys.argv[1]
file = os.open(folder + "/witness", os.O_RDWR)
witness = mmap.mmap(file, 4096)
with Profiler(lambda state: ProfilerAction.SKIP, JSONTraceHandler(folder + "/traces")) as profiler:
    number = 0
    while True:
        profiler.step()
        number += 1
        struct.pack_into("<q", witness, 0, number)
"""


@pytest.mark.parametrize("number", range(NUM_KILLS))
def test_after_a_kill_a_pulse_has_every_step(number, tmp_path):
    witness = tmp_path / "witness"
    witness.write_bytes(bytes(4096))
    process = start_forked(KINETOSCOPE_MODULES, TRAIN, tmp_path)
    until = time.monotonic() + 60
    least = random.Random(number).choice([1, 100, 5000, 20_000]) if NUM_KILLS > 4 else (1, 100, 5000, 20_000)[number]
    try:
        while int.from_bytes(witness.read_bytes()[:8], "little") < least:
            assert time.monotonic() < until
            assert not process.has_ended()
    finally:
        process.kill()
        process.wait()
    witnessed = int.from_bytes(witness.read_bytes()[:8], "little")
    ((pulse,),) = find_pulses(tmp_path).values()
    assert witnessed <= pulse.header.num_steps <= witnessed + 1
    num_read = sum(row.num_steps for row in pulse.rows)
    assert num_read == pulse.header.num_steps or (num_read >= pulse.header.num_steps - 1 and len(pulse.notes) == 2)
    assert not pulse.header.has_ended
