"""recording: windows. Actions flow in, one per batch; a Cycle flows out when a window closes."""

import os
from collections.abc import Sequence
from typing import Any

from kinetoscope.clock.anchor import Anchor, take_anchor
from kinetoscope.clock.clock import Clock
from kinetoscope.recording.action import ProfilerAction
from kinetoscope.recording.cycle import Contributions, Cycle
from kinetoscope.recording.lasting import LastingSpan
from kinetoscope.recording.recorder import ACTION_BITS, Recorder
from kinetoscope.training.attempt import Attempt
from kinetoscope.training.ranks import Ranks, torch_distributed


class Window:
    """The window of one rank: opens at the first batch that is not skipped, and closes into a `Cycle`.

    ``contributions`` collects the files that sources add to the cycle that is being recorded.
    """

    def __init__(self, recorder: Recorder, clock: Clock, ranks: Ranks, attempt: Attempt) -> None:
        self._recorder = recorder
        self._clock = clock
        self._ranks = ranks
        self._attempt = attempt
        self._begin: Anchor | None = None
        self._begin_timestamp: Any = None
        self._epoch = 0
        self._epochs: list[tuple[int, int]] = []
        self._num_cycles = 0
        self.contributions = Contributions(cycle=0)

    @property
    def is_open(self) -> bool:
        return self._begin is not None

    def set_action(self, action: ProfilerAction, timestamp: Any) -> bool:
        """The action of the batch that begins now. Opens the window if it is the first one not skipped, and says so."""
        opens = action is not ProfilerAction.SKIP and not self.is_open
        if opens:
            self._begin = take_anchor(self._clock)
            self._begin_timestamp = timestamp
            self._recorder.open_window()
        self._recorder.action = ACTION_BITS[action]
        return opens

    def enter_epoch(self, epoch: int) -> tuple[int, int] | None:
        """What is recorded from now on belongs to ``epoch``; says when, and to which, if another one has begun in the
        window."""
        if epoch == self._epoch:
            return None
        self._epoch = epoch
        if not self.is_open:
            return None
        self._epochs.append((self._clock.monotonic_ns(), epoch))
        return self._epochs[-1]

    @property
    def num_cycles(self) -> int:
        """How many windows have closed: the number of the cycle to come."""
        return self._num_cycles

    def close(self, run_name: str, timestamp: Any, lasting: Sequence[LastingSpan] = ()) -> Cycle | None:
        """Closes the window at this nanosecond and gives its cycle; None if no window is open."""
        self._recorder.action = 0
        if self._begin is None:
            return None
        recorded = self._recorder.close_window()
        end = take_anchor(self._clock)
        cycle = Cycle(
            number=self._num_cycles,
            run_name=run_name,
            ranks=self._ranks,
            attempt=self._attempt,
            pid=os.getpid(),
            begin_timestamp=self._begin_timestamp,
            timestamp=timestamp,
            begin=self._begin,
            end=end,
            names=self._recorder.names.names,
            recorded=recorded,
            contributions=self.contributions,
            metadata=_distributed_info(self._ranks),
            lasting=lasting,
            epochs=self._epochs,
        )
        self._num_cycles += 1
        self._begin, self._epochs = None, []
        self.contributions = Contributions(cycle=self._num_cycles)
        return cycle


def _distributed_info(ranks: Ranks) -> dict[str, Any]:
    """What a trace says of the run's ranks, in the words of Kineto's own traces."""
    info: dict[str, Any] = {"rank": ranks.rank, "world_size": ranks.world_size}
    if distributed := torch_distributed():
        info["backend"] = distributed.get_backend()
    return {"distributedInfo": info}
