"""JSONTraceHandler under Composer's module path: bare lists, and spans as pairs of begin and end."""

from typing import Any

from kinetoscope.composer.callback import GuardedCallback, TrainerCallback, require_profiler
from kinetoscope.composer.remote import strip_bucket
from kinetoscope.core.job.state import RunState
from kinetoscope.handlers import json_trace_handler
from kinetoscope.recording.window.cycle import Cycle

__all__ = ["JSONTraceHandler"]


class JSONTraceHandler(GuardedCallback, json_trace_handler.JSONTraceHandler, TrainerCallback):
    """Variant of `kinetoscope.JSONTraceHandler` in Composer's layout: a list of events, with ``B`` and ``E`` per span.

    Files are uploaded by the Trainer's loggers. When `Trainer.fit` returns, its traces are merged.
    """

    in_pairs = True

    def __init__(
        self,
        folder: str = "{run_name}/traces",
        filename: str = "ep{epoch}-ba{batch}-rank{rank}.json",
        remote_file_name: str | None = "{run_name}/traces/ep{epoch}-ba{batch}-rank{rank}.json",
        merged_trace_filename: str | None = "merged_trace.json",
        merged_trace_remote_file_name: str | None = "{run_name}/traces/merged_trace.json",
        *,
        overwrite: bool = False,
        num_traces_to_keep: int = -1,
    ) -> None:
        super().__init__(
            folder,
            filename,
            strip_bucket(remote_file_name, "remote_file_name"),
            merged_trace_filename,
            strip_bucket(merged_trace_remote_file_name, "merged_trace_remote_file_name"),
            overwrite=overwrite,
            num_traces_to_keep=num_traces_to_keep,
        )
        self.folder: str = folder
        self.filename: str = filename
        self.remote_file_name = remote_file_name
        self.merged_trace_filename = merged_trace_filename
        self.merged_trace_remote_file_name = merged_trace_remote_file_name
        self.overwrite: bool = overwrite
        self.num_traces_to_keep: int = num_traces_to_keep
        self._is_open = False

    def init(self, state: RunState, logger: object) -> None:
        """Open the folder of traces. Called by the engine."""
        require_profiler(self, state)
        super().init(state, logger)
        self._is_open = True

    def fit_end(self, state: RunState, logger: object) -> None:
        """Merge the traces, which are on disk by now, before `Trainer.fit` returns."""
        self.merge_now(require_profiler(self, state).close_timeout_s)

    def close(self, state: RunState, logger: object) -> None:
        """Close the handler, and the run if the Profiler was removed from the callbacks."""
        if self._is_open:
            require_profiler(self, state).close_if_removed()
            self._is_open = False
            super().close(state, logger)

    def metadata(self, cycle: Cycle, base_ns: int) -> list[dict[str, Any]]:
        """Return our metadata, and the fields that Composer's own merger requires."""
        return super().metadata(cycle, base_ns) + self._tracks.composer_metadata(base_ns)
