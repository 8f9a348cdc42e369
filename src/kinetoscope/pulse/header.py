"""Header of a pulse: its process, and the current state of that process."""

import math
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kinetoscope.core.clock.clock import Anchor, ClockLine
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.struct_json import decode_struct
from kinetoscope.pulse.layout import (
    ABOUT_AT,
    BEGIN,
    COARSE_AT,
    GAUGES,
    GAUGES_AT,
    HEADER_BYTES,
    LOCATION_AT,
    LOCATION_BYTES,
    MAGIC,
    MAX_NS,
    REQUEST,
    REQUEST_AT,
    SAVING,
    VERSION,
    WATCHED,
    WATCHED_AT,
    Phase,
    PulseNow,
    RequestState,
    Stage,
    StallState,
)
from kinetoscope.pulse.pulse_recorder import LENGTH, PulseProcess


@dataclass(frozen=True)
class StallStatus:
    """A phase that lasts too long: its state ``stuck`` since ``reported_ns``, in unix time.

    The training thread is at ``location``, "" if unknown; ``thread`` is Python's number of it.
    """

    stuck: StallState
    reported_ns: int
    thread: int
    location: str


@dataclass(frozen=True)
class RequestStatus:
    """The state of the last request to record that the process has seen.

    It has the number of the request, 0 for none, and its first step.
    """

    sequence: int
    state: RequestState
    first_step: int


@dataclass(frozen=True)
class PulseHeader:
    """The state of a process: ``num_steps`` have ended, and it is in ``phase`` since ``phase_since_ns``.

    ``heartbeat_ns`` is its last heartbeat, both in unix time by ``clock``, which runs through the monotonic clock's
    readings in the pulse. ``has_ended``: the run was closed, with ``has_failed`` after an exception; ``is_saving``: it
    is being closed since ``phase_since_ns``, which is never too long. ``stuck`` is None unless the phase lasts too
    long. Sizes are in bytes; unknown values are None.
    """

    process: PulseProcess
    clock: ClockLine
    num_steps: int
    phase: Phase
    phase_since_ns: int
    heartbeat_ns: int
    has_ended: bool
    resident_bytes: int | None
    device_bytes: int | None
    loss: float | None
    samples_per_s: float | None
    tokens_per_s: float | None
    has_failed: bool = False
    is_saving: bool = False
    stuck: StallStatus | None = None
    request: RequestStatus = RequestStatus(0, RequestState.NONE, 0)

    @property
    def phase_name(self) -> str:
        """The name of the phase, or of the stage after the loop."""
        return SAVING if self.is_saving else self.phase.name.lower()

    @property
    def age(self) -> tuple[str, int, bool]:
        """A key that is greater for a later start, and for the later one of two copies of a pulse."""
        return self.process.attempt.start, self.num_steps, self.has_ended


def require_pulse(content: bytes, path: Path) -> None:
    """Raise `TraceFileError` for a beginning that is not that of a pulse of this version."""
    if len(content) < HEADER_BYTES or not content.startswith(MAGIC):
        raise TraceFileError(f"{path} is no pulse of a run.")
    _, version, header_bytes = BEGIN.unpack_from(content)
    if (version, header_bytes) != (VERSION, HEADER_BYTES):
        raise TraceFileError(f"{path} is a pulse of another version: read it with the Kinetoscope that wrote it.")


def require_whole(num_bytes: int, path: Path) -> None:
    """Raise `TraceFileError` for a file that is too short for the steps of a pulse."""
    if num_bytes < COARSE_AT:
        raise TraceFileError(f"{path} is no pulse of a run: its end is missing.")


def decode_header(content: bytes, path: Path) -> PulseHeader:
    """Return the header of a pulse that `require_pulse` has accepted.

    Raises `TraceFileError` for impossible numbers.
    """
    process, now = _decode_process(content, path), PulseNow.of(content)
    if not now.is_possible:
        raise TraceFileError(f"{path} has numbers that no pulse has: it was damaged.")
    _, resident, device, loss, samples, tokens, monotonic_ns, unix_ns, stage = GAUGES.unpack_from(content, GAUGES_AT)
    line = ClockLine(Anchor(process.monotonic_ns, process.unix_ns), Anchor(monotonic_ns, unix_ns))
    if not unix_ns:  # its process has not looked yet
        resident, device, loss, samples, tokens = -1, -1, math.nan, math.nan, math.nan
    is_saving = stage == Stage.SAVING
    heartbeat_ns = max(now.heartbeat, monotonic_ns) if is_saving else now.heartbeat
    return PulseHeader(
        process=process,
        clock=line,
        num_steps=now.num_steps,
        phase=Phase(now.phase),
        phase_since_ns=line.unix_ns(monotonic_ns if is_saving else now.phase_since),
        heartbeat_ns=line.unix_ns(heartbeat_ns),
        has_ended=stage in (Stage.ENDED, Stage.FAILED),
        has_failed=stage == Stage.FAILED,
        resident_bytes=resident if resident >= 0 else None,
        device_bytes=device if device >= 0 else None,
        loss=_none_if_negative(loss),
        samples_per_s=_none_if_negative(samples),
        tokens_per_s=_none_if_negative(tokens),
        is_saving=is_saving,
        stuck=None if is_saving else _decode_stall(content, now, line),
        request=_decode_request(content),
    )


def _decode_stall(content: bytes, now: PulseNow, line: ClockLine) -> StallStatus | None:
    stuck, phase, since, reported, thread = WATCHED.unpack_from(content, WATCHED_AT)
    is_of_this_phase = (phase, since) == (now.phase, now.phase_since) and 0 <= reported < MAX_NS
    if not is_of_this_phase or stuck == StallState.NONE or stuck not in list(StallState):
        return None
    text = content[LOCATION_AT : LOCATION_AT + LOCATION_BYTES].rstrip(b"\0").decode(errors="ignore")
    return StallStatus(
        StallState(stuck), line.unix_ns(reported), thread, text if stuck in (StallState.LONG, StallState.HUNG) else ""
    )


def _decode_request(content: bytes) -> RequestStatus:
    sequence, state, first_step = REQUEST.unpack_from(content, REQUEST_AT)
    return (
        RequestStatus(sequence, RequestState(state), first_step)
        if state in list(RequestState)
        else RequestStatus(0, RequestState.NONE, 0)
    )


def _none_if_negative(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _decode_process(content: bytes, path: Path) -> PulseProcess:
    (length,) = LENGTH.unpack_from(content, ABOUT_AT)
    text = content[ABOUT_AT + LENGTH.size : min(ABOUT_AT + LENGTH.size + length, HEADER_BYTES)]
    try:
        return decode_struct(text, PulseProcess)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceFileError(f"{path} names no process: {error}.") from error
