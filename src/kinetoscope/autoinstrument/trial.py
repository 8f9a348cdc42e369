"""One start of `kinetoscope try` in a training process: applies variants, and ends the process after N steps."""

import atexit
import contextlib
import ctypes
import hashlib
import math
import os
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from kinetoscope.autoinstrument.settings import ENVIRONMENT_VARIABLE
from kinetoscope.autoinstrument.trial_files import (
    ERROR_FILE,
    EXITED_EARLY,
    EXITED_FILE,
    MIN_STEPS,
    NUM_STEPS_FILE,
    RELEASED_FILE,
    RESULTS_TIMEOUT_S,
    WARMUP_STEPS,
    ParameterSummary,
    RankResult,
    TrialSettings,
    is_abandoned,
    result_path,
    write_atomically,
    write_result,
)
from kinetoscope.core.job.ranks import Ranks, detect_ranks
from kinetoscope.variants.facts import FactsWatch
from kinetoscope.variants.registry import load_variants

if TYPE_CHECKING:
    from kinetoscope.recording.driver import Driver

_POLL_S = 0.01
_MAX_SAMPLES, _MAX_SAMPLES_EACH = 65_536, 1024
"""Maximum number of sampled parameter values, in total and per parameter."""


class Trial:
    """Apply variants, measure steps, and end this process after the last one; call `prepare` once torch is imported."""

    def __init__(self, settings: TrialSettings) -> None:
        self._settings = settings
        self._folder, self._pid = Path(settings.folder), os.getpid()
        self._num_steps, self._num_counted = settings.num_steps, 0
        self._applied: Counter[str] = Counter()
        self._num_applied_at_import = 0
        self._has_trained = False
        self._facts_watch = FactsWatch() if settings.observes else None
        self._first_samples: list[list[float | None]] = []

    def prepare(self) -> None:
        """Set the seed of torch and apply the variants; the bootstrap has set those of random and numpy.

        An error of a variant is written for `kinetoscope try` before it is raised. So is an early exit of the program
        with variants.
        """
        atexit.register(self._handle_exit)
        try:
            sys.modules["torch"].manual_seed(self._settings.seed)
            if self._facts_watch is not None:
                self._facts_watch.install()
            variants_by_name = load_variants(map(Path, self._settings.files)) if self._settings.variants else {}
            for applied in self._settings.variants:
                variants_by_name[applied.name].apply(applied.value, partial(self._count_applied, applied.name))
            self._num_applied_at_import = self._applied.total()
        except Exception as error:
            self._write_error(_format_exception(error))
            raise

    def handle_step(self, driver: "Driver", optimizer: object) -> None:
        """Handle the end of a step: the last one ends the process."""
        self._num_counted += 1
        self._has_trained = True
        if self._num_counted == 1 and self._settings.compares_results:
            self._first_samples = _sample_parameters(optimizer)
        if self._settings.observes:
            self._choose_num_steps(driver)
        if self._num_counted >= WARMUP_STEPS + self._num_steps:
            self._finish(driver, optimizer)

    def handle_run_end(self, driver: "Driver", optimizer: object) -> None:
        """Handle the end of a training run before its last measured step: fewer steps may be enough."""
        if self._num_counted >= WARMUP_STEPS + MIN_STEPS:
            self._finish(driver, optimizer)
        self._num_counted = 0

    def report_unmeasurable(self, reason: str) -> None:
        """End the start, since no step of this program can be measured."""
        self._write_error(f"no step can be measured: {reason}")

    def _handle_exit(self) -> None:
        """Report that this process exits before its last step because of variants, and wait for the end of the start.

        A shell script would run its next line, which it does not reach with the unmodified program. Whether a program
        that has caught an exception exits with an error code is unknown here, so each exit counts.
        """
        is_released = (self._folder / RELEASED_FILE).exists
        if os.getpid() != self._pid or _is_child_of_multiprocessing() or is_released():
            return  # the parent of a child handles its exit
        if not self._settings.variants:
            with contextlib.suppress(OSError):
                (self._folder / EXITED_FILE).touch()
            return
        is_changed = self._applied.total() > self._num_applied_at_import
        if self._settings.has_helpers and not self._has_trained and not is_changed:
            return
        error = getattr(sys, "last_value", None)
        self._write_error(EXITED_EARLY if error is None else _format_exception(error))
        _flush_output()
        self._wait_for_release()

    def _write_error(self, line: str) -> None:
        with contextlib.suppress(OSError):
            write_atomically(self._folder / ERROR_FILE, line.encode(errors="replace"))

    def _count_applied(self, name: str) -> None:
        self._applied[name] += 1

    def _choose_num_steps(self, driver: "Driver") -> None:
        """Reduce the number of steps of all ranks if steps are slow.

        Rank 0 chooses after the warm-up; the others read its choice before the minimum number of steps has ended.
        """
        path = self._folder / NUM_STEPS_FILE
        if self._num_counted == WARMUP_STEPS and detect_ranks().rank == 0:
            step_s = median(self._step_times_ns(driver, WARMUP_STEPS // 2)) / 1e9
            num_fitting = int(self._settings.max_s / step_s) if step_s else self._num_steps
            self._num_steps = min(self._num_steps, max(MIN_STEPS, num_fitting))
            write_atomically(path, str(self._num_steps).encode())
        elif self._num_counted == WARMUP_STEPS + MIN_STEPS - 1:
            with contextlib.suppress(OSError, ValueError):
                self._num_steps = int(path.read_bytes())

    def _step_times_ns(self, driver: "Driver", num_skipped: int) -> list[int]:
        """Return the durations of the steps in the pulse, without the first ``num_skipped``."""
        end = driver.first_step + self._num_counted
        return driver.step_times_ns(driver.first_step + num_skipped, end)

    def _finish(self, driver: "Driver", optimizer: object) -> None:
        """Write the result of this rank, wait for the others, and end the process at once."""
        _synchronize()
        ranks = detect_ranks()
        result = self._measure(driver, optimizer, ranks)
        if self._settings.records:
            driver.end(search=False)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):  # launchers pass on the signal that ends them
                signal.signal(number, signal.SIG_IGN)
        write_result(self._folder, result)
        _flush_output()
        paths = [result_path(self._folder, rank) for rank in range(ranks.local_world_size)]
        _wait_until(lambda: all(path.exists() for path in paths), RESULTS_TIMEOUT_S)
        if ranks.rank == 0:
            # A shell script runs its next line as soon as rank 0 ends, so it waits even for a suspended `try`.
            self._wait_for_release()
        os._exit(0)

    def _wait_for_release(self) -> None:
        """Wait until this process may end; if `kinetoscope try` and its guard were killed, end all others."""
        is_released = (self._folder / RELEASED_FILE).exists
        _wait_until(lambda: is_released() or is_abandoned(self._folder), math.inf)
        if not is_released():
            from kinetoscope.autoinstrument.process_group import ProcessGroup  # here, since psutil is slow to import

            ProcessGroup(ENVIRONMENT_VARIABLE, str(self._folder)).kill()

    def _measure(self, driver: "Driver", optimizer: object, ranks: Ranks) -> RankResult:
        return RankResult(
            rank=ranks.rank,
            world_size=ranks.world_size,
            local_world_size=ranks.local_world_size,
            pid=os.getpid(),
            step_times_ns=self._step_times_ns(driver, WARMUP_STEPS)[: self._num_steps],
            peak_bytes=_peak_bytes(),
            peak_device_bytes=_peak_device_bytes(),
            num_applied=dict(self._applied),
            facts=self._facts_watch.collect(ranks.local_world_size) if self._facts_watch is not None else None,
            parameters=self._summarize_parameters(optimizer) if self._settings.compares_results else None,
        )

    def _summarize_parameters(self, optimizer: object) -> ParameterSummary:
        digest = hashlib.blake2b(digest_size=16)
        for parameter in _copy_parameters(optimizer):
            digest.update((ctypes.c_char * parameter.nbytes).from_address(parameter.data_ptr()))
        return ParameterSummary(digest.hexdigest(), self._first_samples, _sample_parameters(optimizer))


def _format_exception(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).splitlines()[0]


def _is_child_of_multiprocessing() -> bool:
    """Return whether multiprocessing has started this process."""
    process: Any = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _synchronize() -> None:
    torch: Any = sys.modules["torch"]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _copy_parameters(optimizer: object) -> list[Any]:
    """Return the parameters of an optimizer on the CPU; of a sharded one, this rank's shard."""
    groups: list[dict[str, Any]] = getattr(optimizer, "param_groups", [])
    tensors = [parameter.detach() for group in groups for parameter in group["params"]]
    locals_ = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
    return [tensor.cpu().contiguous() for tensor in locals_]


def _sample_parameters(optimizer: object) -> list[list[float | None]]:
    """Return values of each parameter, evenly spaced."""
    parameters = _copy_parameters(optimizer)
    max_samples = min(_MAX_SAMPLES_EACH, max(1, _MAX_SAMPLES // max(1, len(parameters))))
    return [
        parameter.flatten()[:: max(1, -(-parameter.numel() // max_samples))].double().tolist()
        for parameter in parameters
    ]


def _peak_bytes() -> int | None:
    """Return the peak resident memory of this process; None where that is unknown."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _peak_device_bytes() -> int | None:
    torch: Any = sys.modules["torch"]
    is_used = torch.cuda.is_available() and torch.cuda.is_initialized()
    return torch.cuda.max_memory_allocated() if is_used else None


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _wait_until(is_done: Callable[[], bool], timeout_s: float) -> None:
    end = time.monotonic() + timeout_s
    while not is_done() and time.monotonic() < end:
        time.sleep(_POLL_S)
