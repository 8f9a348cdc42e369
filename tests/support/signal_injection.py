"""Raises a signal at any of the places in our code at which Python may handle one."""

import dis
import gc
import os
import signal
import sys

import kinetoscope

_OURS = os.path.dirname(kinetoscope.__file__)
_HANDLED_AFTER = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD")
"""Opcodes after which Python handles signals, which it does nowhere else."""


class InjectedSignals:
    """Raises a signal at the place with that number, counted from 1, while ``method`` runs for the first time.

    `stop` sets the trace function of `start`'s caller again, such as that of coverage. ``num_places`` is the number
    of places so far. Nothing is collected meanwhile: Python ignores an exception in what a collection calls, and the
    number of places would vary.
    """

    def __init__(self, number, place, method):
        self._number, self._place, self._code = number, place, method.__code__
        self._depth = self.num_places = 0
        self._is_over = self._is_started = self._collects = False
        self._before = None

    def start(self):
        self._is_started, self._before, self._collects = True, sys.gettrace(), gc.isenabled()
        gc.disable()
        sys.settrace(self._trace)

    def stop(self):
        if self._is_started:
            self._is_started = False
            sys.settrace(self._before)
            if self._collects:
                gc.enable()

    def _trace(self, frame, event, argument):
        begins = self._depth > 0 or frame.f_code is self._code
        if self._is_over or not begins or not frame.f_code.co_filename.startswith(_OURS):
            return None
        self._depth += 1
        before = [""]

        def in_frame(frame, event, argument):
            if event == "return":
                self._depth -= 1
                self._is_over |= self._depth == 0
            elif event == "opcode" and not self._is_over:
                is_place, before[0] = before[0] in _HANDLED_AFTER, dis.opname[frame.f_code.co_code[frame.f_lasti]]
                self.num_places += is_place
                if is_place and self.num_places == self._place:
                    signal.raise_signal(self._number)
            return in_frame

        frame.f_trace = in_frame  # from Python 3.12 on, opcodes of a frame are traced only if it has this before
        frame.f_trace_opcodes = True
        return in_frame
