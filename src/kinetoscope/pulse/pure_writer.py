"""The writer of a pulse in Python, for machines without the one in C (`src/native/pulse/pulse.c`), whose twin it is."""

import itertools
import os
import sys
import threading
from collections.abc import Callable
from threading import get_ident
from time import monotonic_ns
from typing import Any

from kinetoscope.formats.record_request import request_sequence
from kinetoscope.pulse.layout import (
    BEGIN,
    BLOCK,
    COARSE_AT,
    FINE_AT,
    FINE_PLACES,
    HEADER_BYTES,
    LOOK_S,
    MAGIC,
    NOW,
    NOW_AT,
    NUM_EXACT,
    NUM_FINE,
    PER_FINE,
    STEP,
    STEPS_AT,
    STOOD_STILL_S,
    VERSION,
    WATCHED,
    WATCHED_AT,
    Phase,
    Stuck,
    Woken,
)
from kinetoscope.pulse.pure_slow_steps import SlowSteps

_LOOK_EVERY_NS = 1_000_000_000
_LOOKS_PER_REQUEST = 4
_STOOD_STILL_NS = round(STOOD_STILL_S * 1e9)
_EMPTY = bytes(BLOCK.size)
_FIELDS_BEFORE_SUMS, _FIELDS_OF_SUM = 7, 4
_COUNT = 3
_MOST_STRETCHES = 1 << 20


class PulseWriter:
    """Writes a pulse into ``file``, a writable buffer of zeros, with at most ``num_places`` coarse blocks, and as many
    as it has room for.

    A forked child, which has its parent's file mapped, writes nothing. Raises ValueError if the buffer is too short.
    """

    def __init__(self, file: Any, now: Callable[[], int] | None = None, num_places: int = sys.maxsize) -> None:
        self._file: Any = memoryview(file)
        self._num_places = self._places_in(num_places)
        if self._num_places < 2:
            raise ValueError("The file is too short for a pulse.")
        self._now = now or monotonic_ns
        self._pid = os.getpid()
        began_ns = self._now()
        self._by_phase = [0] * len(Phase)
        self._sequence = self._num_steps = self._first_fine = self._num_fine = self._num_coarse = 0
        self._steps_per_coarse = NUM_EXACT
        self._phase, self._known = int(Phase.OTHER), 1 << Phase.OTHER
        self._heartbeat_ns = self._phase_since_ns = self._step_began_ns = self._looked_at_ns = began_ns
        self._thread = self._backward_depth = self._num_backward = 0
        self._before_backward = self._before_optimizer = self._before_checkpoint = int(Phase.OTHER)
        self._checkpoint_depth, self._has_just_written = 0, False
        self._num_nested = 0
        self._count_nodes: Callable[[], int] | None = None
        self._nodes_before = -1
        self._built_before_fetch, self._fetches_ahead = 0, False
        self._is_stopped, self._request = threading.Event(), b""
        self._watched_at_ns = 0
        self._stood_still = 0, 0
        """When a phase began, and for how long the process stood still in it."""
        self._stretches: list[tuple[int, int, int]] | None = None
        self._notes_since_ns = self._num_left_out = 0
        self._slow: SlowSteps | None = None
        BEGIN.pack_into(self._file, 0, MAGIC, VERSION, HEADER_BYTES)
        self._write_now()

    def enter(self, phase: int) -> int:
        """Begins a phase; returns the one before."""
        if not 0 <= phase < len(Phase):
            raise ValueError("There is no such phase.")
        if self._file is None or self._pid != os.getpid():
            return phase
        before = self._phase
        if phase == Phase.DATA_WAIT:
            self._end_stretch_before_fetch()
        if before == Phase.DATA_WAIT:
            self._take_built()
        self._change_phase(phase)
        return before

    # -- what torch's hooks tell --

    def watch_thread(self, ident: int) -> None:
        """What begins and ends from now on is of interest on this thread; 0 for none."""
        self._thread = ident

    def begin_backward(self) -> None:
        """Begins a backward pass. What went before it was the forward pass, which nothing else tells, also within the
        closure of an optimizer's step."""
        if not self._is_watched():
            return
        self._backward_depth += 1
        if self._backward_depth > 1:
            return
        self._num_backward += 1
        before = self._before_backward = self._phase
        built = self._take_built()
        if before == Phase.OTHER:
            self._fetches_ahead = self._built_before_fetch > built
        self._built_before_fetch = 0
        if before in (Phase.OTHER, Phase.OPTIMIZER):
            self._phase, self._known = int(Phase.FORWARD), self._known | 1 << Phase.FORWARD
        self._change_phase(int(Phase.BACKWARD))

    def end_backward(self) -> None:
        """Back to the phase before."""
        if not self._is_watched():
            return
        self._backward_depth = max(0, self._backward_depth - 1)
        if self._backward_depth == 0:
            self._take_built()
            self._change_phase(self._before_backward)

    def begin_optimizer(self, *_: object) -> None:
        """Begins a step of an optimizer; a hook of torch's."""
        if not self._is_watched():
            return
        if self._phase == Phase.OPTIMIZER:
            self._num_nested += 1  # its class calls the step of the one above, and both are hooked
        else:
            self._num_nested, self._before_optimizer = 0, self._phase
            self._change_phase(int(Phase.OPTIMIZER))

    def end_optimizer(self, *_: object) -> None:
        """Back to the phase before; a hook of torch's."""
        if not self._is_watched():
            return
        if self._num_nested > 0:
            self._num_nested -= 1
        else:
            self._take_built()
            self._built_before_fetch = 0
            self._change_phase(self._before_optimizer)

    def begin_checkpoint(self) -> None:
        """Begins to write a checkpoint, which goes on since the last call if nothing else was."""
        if not self._is_watched():
            return
        self._checkpoint_depth += 1
        if self._checkpoint_depth == 1:
            self._before_checkpoint = self._phase
            if self._has_just_written:
                self._phase = int(Phase.CHECKPOINT)
            self._change_phase(int(Phase.CHECKPOINT))

    def end_checkpoint(self) -> None:
        """Back to the phase before."""
        if not self._is_watched():
            return
        self._checkpoint_depth = max(0, self._checkpoint_depth - 1)
        if self._checkpoint_depth == 0:
            self._change_phase(self._before_checkpoint)
            self._has_just_written = True

    def watch_graph(self, count_nodes: Callable[[], int] | None) -> None:
        """Use this function to count the nodes of autograd graphs of the watched thread; or None."""
        self._count_nodes = count_nodes
        self._take_built()

    def has_no_graph(self) -> bool:
        """Return whether the watched thread is in no phase, and has built no graph since that started."""
        if not self._is_watched() or self._phase != Phase.OTHER:
            return False
        count = self._num_nodes()
        return count >= 0 and count == self._nodes_before

    def _num_nodes(self) -> int:
        is_known = self._count_nodes is not None and self._thread == get_ident()
        return self._count_nodes() if is_known and self._count_nodes is not None else -1

    def _take_built(self) -> int:
        """Return how many nodes were built in the running stretch, and start the next one."""
        count, before = self._num_nodes(), self._nodes_before
        self._nodes_before = count
        return 0 if count < 0 or before < 0 else count - before

    def expect_fetch(self) -> None:
        """Expect a fetch next: what came before it was the forward pass, if that built a graph."""
        if self._is_watched():
            self._end_stretch_before_fetch()

    def _end_stretch_before_fetch(self) -> None:
        """Label the stretch before a fetch as the forward pass, if the loop fetches between its forward and backward
        pass: then the graph is built before the fetch."""
        if self._phase != Phase.OTHER:
            return
        built = self._take_built()
        self._built_before_fetch += built
        if self._fetches_ahead and built:
            self._phase, self._known = int(Phase.FORWARD), self._known | 1 << Phase.FORWARD
            self._enter(int(Phase.OTHER), self._now())

    def num_backward(self) -> int:
        """How many backward passes have begun on the watched thread."""
        return self._num_backward

    def _is_watched(self) -> bool:
        return self._thread == get_ident() and self._file is not None and self._pid == os.getpid()

    # -- the stretches of phases --

    def note_phases(self) -> None:
        """Keeps each stretch of a forward or backward pass or of an optimizer from now on."""
        self._stretches, self._notes_since_ns, self._num_left_out = [], self._now(), 0

    def take_phases(self) -> tuple[list[tuple[int, int, int]], int]:
        """Ends this; returns phases with their begins and ends, and how many found no room."""
        if self._stretches is not None:
            self._note_stretch(self._phase, self._phase_since_ns, self._now())
        taken, self._stretches = self._stretches or [], None
        return taken, self._num_left_out

    def _note_stretch(self, phase: int, begin_ns: int, end_ns: int) -> None:
        kept = self._stretches
        if kept is None or phase not in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
            return
        begin_ns = max(begin_ns, self._notes_since_ns)
        if kept and kept[-1][0] == phase and kept[-1][2] == begin_ns:
            kept[-1] = phase, kept[-1][1], end_ns  # a step has ended in it
        elif begin_ns < end_ns and len(kept) < _MOST_STRETCHES:
            kept.append((phase, begin_ns, end_ns))
        else:
            self._num_left_out += begin_ns < end_ns

    def watch_slow_steps(self, slow: SlowSteps | None) -> None:
        """`SlowSteps` are told of steps and phases from now on; or, with None, nobody."""
        self._slow = slow
        if slow is not None:
            slow.begin_step(self._step_began_ns)

    # -- steps --

    def begin_step(self) -> None:
        """Begins a step: what was before belongs to none."""
        if self._file is not None and self._pid == os.getpid():
            self._enter(self._phase, self._now())
            self._step_began_ns = self._phase_since_ns
            self._by_phase = [0] * len(Phase)
            self._write_now()
            if self._slow is not None:
                self._slow.begin_step(self._step_began_ns)

    def end_step(self, batch: int, epoch: int, end_ns: int | None = None) -> bool:
        """End a step, now or at an earlier time, and begin the next one now.

        Return whether a second has passed since this last returned True.
        """
        if self._file is None or self._pid != os.getpid():
            return False
        now_ns = self._now()
        self._enter(self._phase, now_ns)
        began_ns, self._step_began_ns = self._step_began_ns, now_ns
        end_ns = now_ns if end_ns is None else max(began_ns, min(end_ns, now_ns))
        self._cut_phases(now_ns - end_ns)
        times = (began_ns, end_ns - began_ns, *self._by_phase)
        self._write_step(batch, *times, epoch & 0xFFFFFFFF, self._known)
        if self._slow is not None:
            self._slow.end_step(batch, epoch & 0xFFFFFFFF, began_ns, end_ns - began_ns, self._by_phase)
        self._by_phase = [0] * len(Phase)
        if now_ns - self._looked_at_ns < _LOOK_EVERY_NS:
            return False
        self._looked_at_ns = now_ns
        return True

    def _cut_phases(self, excess_ns: int) -> None:
        """Take the time after a step's earlier end off its phases: first off "other", in which a loop ends."""
        for phase in reversed(Phase):
            cut_ns = min(self._by_phase[phase], excess_ns)
            self._by_phase[phase] -= cut_ns
            excess_ns -= cut_ns

    def add_step(self, batch: int, begin_ns: int, end_ns: int) -> None:
        """Add a step that is over, of unknown phases."""
        if self._file is not None and self._pid == os.getpid():
            self._write_step(batch, begin_ns, end_ns - begin_ns, *([0] * len(Phase)), 0, 0)

    def _write_step(self, *step: int) -> None:
        self._sequence += 1
        self._write_now()
        at = STEPS_AT + self._num_steps % NUM_EXACT * STEP.size
        if self._num_steps >= NUM_EXACT:
            self._fold_step(STEP.unpack_from(self._file, at))
        STEP.pack_into(self._file, at, *step)
        self._num_steps += 1
        self._sequence += 1
        self._write_now()

    # -- the thread that watches --

    def watch(self, request: bytes) -> bool:
        """Looks at the phases from now on, and at the file of requests."""
        self._request = request
        return True

    def wait(self, limits: tuple[int, ...], spared: int, duration: int, sequence: int) -> int:
        """Waits until a phase lasts longer than its limit, other than the one that began at ``spared``; until the
        request has another number than ``sequence``; or for ``duration``. Returns which it was, as `Woken`."""
        request, self._watched_at_ns = self._request, 0
        until_ns = monotonic_ns() + duration
        for looks in itertools.count():
            if request and looks % _LOOKS_PER_REQUEST == 0 and request_sequence(request) not in (0, sequence):
                return int(Woken.ASKED)
            now_ns = monotonic_ns()
            if self._is_stopped.is_set() or self._pid != os.getpid():
                break
            if self._is_stuck(limits, spared, now_ns):
                return int(Woken.STUCK)
            if now_ns >= until_ns:
                return int(Woken.DUE)
            self._is_stopped.wait(min(LOOK_S, (until_ns - now_ns) / 1e9))
        return int(Woken.STOPPED)

    def _is_stuck(self, limits: tuple[int, ...], spared: int, now_ns: int) -> bool:
        since_ns, phase, file = self._phase_since_ns, self._phase, self._file
        apart_ns = now_ns - max(self._watched_at_ns or now_ns, since_ns)
        still_ns = self._stood_still[1] if self._stood_still[0] == since_ns else 0
        self._stood_still = since_ns, still_ns + (apart_ns if apart_ns > _STOOD_STILL_NS else 0)
        self._watched_at_ns = now_ns
        lasted_ns = now_ns - since_ns - self._stood_still[1]
        if since_ns == spared or lasted_ns <= limits[phase] or file is None:
            return False
        thread = WATCHED.unpack_from(file, WATCHED_AT)[4]
        WATCHED.pack_into(file, WATCHED_AT, Stuck.SUSPECTED, phase, since_ns, now_ns, thread)
        return True

    def stop_waiting(self) -> None:
        """Ends `wait`, for good."""
        self._is_stopped.set()

    def signal_if_held(self, signal: int) -> None:
        """The one in C sends a signal to its own thread where the GIL is held. This one does not run then."""

    def ask_main_thread(self) -> int:
        """The one in C lets the main thread answer, once it runs Python, and counts its answers. Here it has none."""
        return 0

    def extend(self, num_places: int) -> None:
        """So many coarse blocks have room now."""
        if self._file is not None:
            self._num_places = max(self._num_places, self._places_in(num_places))

    def _places_in(self, wanted: int) -> int:
        return min(wanted, (len(self._file) - COARSE_AT) // BLOCK.size) // 2 * 2

    def close(self) -> None:
        """Writes no more."""
        self._is_stopped.set()
        if self._file is not None:
            self._file.release()
            self._file = None

    def _change_phase(self, phase: int) -> None:
        self._enter(phase, self._now())
        self._write_now()

    def _enter(self, phase: int, now_ns: int) -> None:
        if self._stretches is not None:
            self._note_stretch(self._phase, self._phase_since_ns, now_ns)
        if self._slow is not None:
            self._slow.note_phase(self._phase, self._phase_since_ns, now_ns)
        self._has_just_written = False
        self._by_phase[self._phase] += now_ns - self._phase_since_ns
        self._phase, self._known = phase, self._known | 1 << phase
        self._phase_since_ns = self._heartbeat_ns = now_ns

    def _write_now(self) -> None:
        NOW.pack_into(
            self._file,
            NOW_AT,
            self._sequence,
            self._num_steps,
            self._first_fine,
            self._num_fine,
            self._num_coarse,
            self._steps_per_coarse,
            self._heartbeat_ns,
            self._phase_since_ns,
            self._phase,
            self._known,
            self._step_began_ns,
        )

    # -- blocks --

    def _fold_step(self, step: tuple[int, ...]) -> None:
        number, began_ns, duration_ns, *by_phase, epoch, known = step
        sums = [value for ns in (duration_ns, *by_phase) for value in (ns, float(ns) * float(ns), ns, ns)]
        block = BLOCK.pack(number, began_ns, number, 1, epoch, known, 0, *sums)
        at = FINE_AT + self._num_fine % FINE_PLACES * BLOCK.size
        if self._add_block(at, block) < PER_FINE:
            return
        self._num_fine += 1
        if self._num_fine - self._first_fine > NUM_FINE:
            self._fold_fine(FINE_AT + self._first_fine % FINE_PLACES * BLOCK.size)
            self._first_fine += 1
        self._clear(FINE_AT + self._num_fine % FINE_PLACES * BLOCK.size)

    def _fold_fine(self, at: int) -> None:
        if (
            self._add_block(self._coarse_at(self._num_coarse), self._file[at : at + BLOCK.size])
            < self._steps_per_coarse
        ):
            return
        self._num_coarse += 1
        if self._num_coarse == self._num_places:
            self._fold_in_pairs()
        self._clear(self._coarse_at(self._num_coarse))

    def _fold_in_pairs(self) -> None:
        for number in range(self._num_places // 2):
            first, at = self._coarse_at(2 * number), self._coarse_at(number)
            pair = bytes(self._file[first : first + 2 * BLOCK.size])
            self._file[at : at + BLOCK.size] = pair[: BLOCK.size]
            self._add_block(at, pair[BLOCK.size :])
        self._num_coarse //= 2
        self._steps_per_coarse *= 2

    def _add_block(self, at: int, more: Any) -> int:
        """Adds a block of later steps to the one at a place; returns how many steps that has then."""
        block, later = BLOCK.unpack_from(self._file, at), BLOCK.unpack_from(more)
        if not block[_COUNT]:
            self._file[at : at + BLOCK.size] = more
            return later[_COUNT]
        number, began_ns, slowest, count, epoch, known, unused, *sums = block
        more_sums = later[_FIELDS_BEFORE_SUMS:]
        if more_sums[3] > sums[3]:
            slowest = later[2]
        added: list[float] = []
        for place in range(0, len(sums), _FIELDS_OF_SUM):
            (total, squares, least, most), (other_total, other_squares, other_least, other_most) = (
                some[place : place + _FIELDS_OF_SUM] for some in (sums, more_sums)
            )
            added += [total + other_total, squares + other_squares, min(least, other_least), max(most, other_most)]
        count += later[_COUNT]
        BLOCK.pack_into(self._file, at, number, began_ns, slowest, count, epoch, known & later[5], unused, *added)
        return count

    def _clear(self, at: int) -> None:
        self._file[at : at + BLOCK.size] = _EMPTY

    @staticmethod
    def _coarse_at(number: int) -> int:
        return COARSE_AT + number * BLOCK.size
