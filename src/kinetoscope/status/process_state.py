"""State of the process of a pulse, from the kernel; no signal is sent."""

import os
import time
from enum import Enum
from functools import cache
from pathlib import Path

from kinetoscope.core.clock.proc import StatField, read_stat
from kinetoscope.core.job.ranks import pid_space
from kinetoscope.pulse.pulse_recorder import PulseProcess
from kinetoscope.spool.folders import find_spool_folder
from kinetoscope.spool.owner_lock import OwnerState, read_owner_state

_STOPPED, _TRACED = "T", "t"
_TRACER_CHECK_S = 0.05  # strace and samplers stop a process repeatedly, for less than that
_START_TOLERANCE_NS = 20_000_000  # the kernel has start times in units of 10 ms
_own_pid_space = cache(pid_space)


class ProcessState(Enum):
    """State of a process; UNKNOWN on another machine."""

    RUNNING = 1
    STOPPED = 2
    """Suspended by a signal, such as SIGSTOP or Ctrl-Z, or by a debugger."""

    DEAD = 3
    UNKNOWN = 4


def read_process_state(run_folder: Path, process: PulseProcess) -> ProcessState:
    """Return the state of a process; in another container of this machine, by the lock of its spool."""
    here = _own_pid_space()
    if here and process.pid_space == here:
        return _read_proc_state(process)
    if process.pid_space.partition(".")[0] != here.partition(".")[0]:
        return ProcessState.UNKNOWN
    attempt = None if here else process.attempt  # without a pid namespace, the pid is valid on the same host only
    owner = read_owner_state(find_spool_folder(run_folder, process.attempt.start), attempt)
    return {OwnerState.ALIVE: ProcessState.RUNNING, OwnerState.DEAD: ProcessState.DEAD}.get(owner, ProcessState.UNKNOWN)


def _read_proc_state(process: PulseProcess) -> ProcessState:
    """Return the state of a process in this pid namespace, from ``/proc``."""
    try:
        fields = read_stat(process.attempt.pid)
    except (FileNotFoundError, ProcessLookupError):
        return ProcessState.DEAD
    except OSError:
        return ProcessState.UNKNOWN
    state, started_ns = fields[StatField.STATE], _start_time_ns(int(fields[StatField.START]))
    if state in "ZX" or started_ns > process.monotonic_ns + _START_TOLERANCE_NS:
        return ProcessState.DEAD  # a later start: another process has its pid now
    is_stopped = state == _STOPPED or (state == _TRACED and _is_stopped_for_long(process.attempt.pid))
    return ProcessState.STOPPED if is_stopped else ProcessState.RUNNING


def _is_stopped_for_long(pid: int) -> bool:
    """Return whether a traced process stays stopped, as under a debugger; tracers stop it for a moment only."""
    before = _read_context_switches(pid)
    time.sleep(_TRACER_CHECK_S)
    return _read_context_switches(pid) == before


def _read_context_switches(pid: int) -> list[str]:
    """Return the kernel's lines on context switches of a process; empty if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if "ctxt_switches" in line]


def _start_time_ns(ticks: int) -> int:
    """Return the start time of a process on the monotonic clock, which does not count suspended time of the machine."""
    slept_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK") - slept_ns
