"""TorchProfiler under Composer's module path, as a Callback for a Trainer."""

import logging

from kinetoscope.composer.callback import GuardedCallback, TrainerCallback, require_profiler
from kinetoscope.composer.remote import TrainerLogger, strip_bucket
from kinetoscope.core.job.state import RunState
from kinetoscope.sources import torch_profiler
from kinetoscope.torch import profile
from kinetoscope.torch.results import KinetoResults

__all__ = ["TorchProfiler"]

_log = logging.getLogger(__name__)
_MAX_ROWS = 20


class TorchProfiler(GuardedCallback, torch_profiler.TorchProfiler, TrainerCallback):
    """Variant of `kinetoscope.TorchProfiler` for a Trainer. `Profiler` creates one if a ``torch_prof_`` option is on.

    It logs ``profiler/state`` at each batch. If INFO is logged, it also logs the operators of the last window at its
    end.
    """

    def __init__(
        self,
        folder: str = "{run_name}/torch_traces",
        filename: str | None = "rank{rank}.{batch}.pt.trace.json",
        remote_file_name: str | None = "{run_name}/torch_traces/rank{rank}.{batch}.pt.trace.json",
        memory_filename: str | None = None,
        memory_remote_file_name: str | None = "{run_name}/torch_memory_traces/rank{rank}.{batch}.pt.trace.memory.html",
        overwrite: bool = False,
        use_gzip: bool = False,
        record_shapes: bool = False,
        profile_memory: bool = True,
        with_stack: bool = False,
        with_flops: bool = True,
        num_traces_to_keep: int = -1,
    ) -> None:
        self.remote_file_name = strip_bucket(remote_file_name, "remote_file_name")
        self.memory_remote_file_name: str | None = strip_bucket(memory_remote_file_name, "memory_remote_file_name")
        self.filename = filename
        self.memory_filename: str | None = memory_filename
        if use_gzip:
            self.filename, self.remote_file_name = map(_add_gz_suffix, (self.filename, self.remote_file_name))
        super().__init__(
            folder,
            self.filename,
            self.remote_file_name,
            memory_filename,
            self.memory_remote_file_name,
            overwrite=overwrite,
            use_gzip=use_gzip,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            num_traces_to_keep=num_traces_to_keep,
        )
        self.folder: str = folder
        self.overwrite: bool = overwrite
        self.num_traces_to_keep: int = num_traces_to_keep
        self.record_shapes: bool = record_shapes
        self.profile_memory: bool = profile_memory
        self.with_stack: bool = with_stack
        self.with_flops: bool = with_flops
        self._has_started = False
        self._last_results: KinetoResults | None = None

    def init(self, state: RunState, logger: object) -> None:
        """Open the folder of traces and create torch's profiler."""
        require_profiler(self, state)
        super().init(state, logger)
        self.profiler = self._make(state)

    def fit_start(self, state: RunState, logger: object) -> None:
        """Start torch's profiler, or let it follow the schedule in another fit."""
        if self.profiler is not None and self._has_started:
            self.profiler.follow_schedule()
            return
        torch_profiler = self._make(state)  # a new one: after INIT the run may have been resumed at another batch
        torch_profiler.start()
        self.profiler, self._has_started = torch_profiler, True

    def epoch_end(self, state: RunState, logger: object) -> None:
        """Save the window if recording ends with the epoch."""
        if self.profiler is not None:
            self.save_if_recording_ends(state)

    def fit_end(self, state: RunState, logger: object) -> None:
        """Finish the window of torch's profiler."""
        if self.profiler is not None:
            self.profiler.finish_window()

    def batch_start(self, state: RunState, logger: TrainerLogger | None) -> None:
        """Log the state of torch's profiler."""
        if self.profiler is not None and logger is not None:
            logger.log_traces({"profiler/state": self.profiler.current_action.name})

    def close(self, state: RunState, logger: object) -> None:
        """Close torch's profiler and the folder of traces."""
        if not self._has_started:
            self.profiler = None
        super().close(state, logger)

    def post_close(self) -> None:
        """Finish uploads, and log the operators of the last window."""
        super().post_close()
        results, self._last_results = self._last_results, None
        if results is not None:
            averages = results.key_averages()
            _log.info(averages.table(sort_by="cpu_time_total", row_limit=_MAX_ROWS))
            if self.profile_memory:
                _log.info(averages.table(sort_by="self_cpu_memory_usage", row_limit=_MAX_ROWS))

    def process_results(self, results: KinetoResults) -> None:
        """Keep the last window for the tables, if INFO is logged."""
        if _log.isEnabledFor(logging.INFO):
            self._last_results = results

    def _make(self, state: RunState) -> profile:
        return self.make_profile(state, lambda: state.profiler.schedule(state))


def _add_gz_suffix(name: str | None) -> str | None:
    return f"{name}.gz" if name and not name.endswith(".gz") else name
