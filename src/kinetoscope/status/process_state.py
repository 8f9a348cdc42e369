"""Whether the process of a pulse still runs. It asks the kernel, and sends no signal."""

import os
import time
from enum import Enum
from functools import cache
from pathlib import Path

from kinetoscope.core.job.ranks import pid_space
from kinetoscope.pulse.own_pulse import PulseProcess
from kinetoscope.spool.folders import find_spool_folder
from kinetoscope.spool.owner_lock import OwnerState, read_owner_state

_STATE, _STARTED = 0, 19  # fields of /proc/PID/stat after the command's name
_STOPPED, _TRACED = "T", "t"
_TRACER_CHECK_S = 0.05  # strace and samplers stop a process for less than that, again and again
_START_TOLERANCE_NS = 20_000_000  # the kernel tells starts in hundredths of a second
_own_pid_space = cache(pid_space)


class ProcessState(Enum):
    """What is known of a process; nothing of one on another machine."""

    RUNNING = 1
    STOPPED = 2
    """By a signal, such as SIGSTOP or Ctrl-Z, or by a debugger."""

    DEAD = 3
    UNKNOWN = 4


def read_process_state(run_folder: Path, process: PulseProcess) -> ProcessState:
    """How the process is doing. Of one in another container of this machine, the lock of its live folder tells whether
    it is alive."""
    here = _own_pid_space()
    if here and process.pid_space == here:
        return _read_proc_state(process)
    if process.pid_space.partition(".")[0] != here.partition(".")[0]:
        return ProcessState.UNKNOWN
    attempt = None if here else process.attempt  # without a space, its pid counts where its host's name is ours
    owner = read_owner_state(find_spool_folder(run_folder, process.attempt.start), attempt)
    return {OwnerState.ALIVE: ProcessState.RUNNING, OwnerState.DEAD: ProcessState.DEAD}.get(owner, ProcessState.UNKNOWN)


def _read_proc_state(process: PulseProcess) -> ProcessState:
    try:
        text = Path(f"/proc/{process.attempt.pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ProcessState.DEAD
    except OSError:
        return ProcessState.UNKNOWN
    fields = text.rpartition(")")[2].split()
    if fields[_STATE] in "ZX" or _start_time_ns(int(fields[_STARTED])) > process.monotonic_ns + _START_TOLERANCE_NS:
        return ProcessState.DEAD  # in the second case another process has its pid now
    is_stopped = fields[_STATE] == _STOPPED or (fields[_STATE] == _TRACED and _is_stopped_for_long(process.attempt.pid))
    return ProcessState.STOPPED if is_stopped else ProcessState.RUNNING


def _is_stopped_for_long(pid: int) -> bool:
    """Whether a process that another one traces is stopped for longer than a moment, as by a debugger."""
    before = _read_context_switches(pid)
    time.sleep(_TRACER_CHECK_S)
    return _read_context_switches(pid) == before


def _read_context_switches(pid: int) -> list[str]:
    """How often a process has begun to wait or lost its processor, as the kernel's lines; none if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if "ctxt_switches" in line]


def _start_time_ns(ticks: int) -> int:
    """When a process began, on the monotonic clock, which does not count the time that the machine slept."""
    slept_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK") - slept_ns
