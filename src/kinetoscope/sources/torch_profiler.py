"""Kineto traces of torch's operators and kernels, one per cycle."""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kinetoscope.core.job.event import Callback, skippable
from kinetoscope.core.job.file_names import FileNameFormat
from kinetoscope.core.job.timestamp import Moment, plain_count
from kinetoscope.core.text.wording import format_missing_options
from kinetoscope.errors import SettingsError
from kinetoscope.recording.markers.marker import Marker
from kinetoscope.recording.markers.process import hold_signals
from kinetoscope.recording.markers.recorder_types import PROFILER_CATEGORY
from kinetoscope.recording.markers.schedule import ProfilerAction
from kinetoscope.recording.run.plugin_api import ProfiledState, RunContext
from kinetoscope.recording.window.cycle import Contributions
from kinetoscope.recording.window.trace_folder import TraceFolder
from kinetoscope.torch import ProfilerAction as TorchAction
from kinetoscope.torch import ProfilerActivity, profile
from kinetoscope.torch.private_names import MissingNameError
from kinetoscope.torch.results import KinetoResults
from kinetoscope.torch.session import Activity, import_compiler, select_activities
from kinetoscope.uploads.rank_uploads import RemoteName, get_uploads

_log = logging.getLogger("kinetoscope")

_TORCH_ACTIONS = {
    ProfilerAction.SKIP: TorchAction.NONE,
    ProfilerAction.WARMUP: TorchAction.WARMUP,
    ProfilerAction.ACTIVE: TorchAction.RECORD,
    ProfilerAction.ACTIVE_AND_SAVE: TorchAction.RECORD_AND_SAVE,
}
_RECORDING = (TorchAction.RECORD, TorchAction.RECORD_AND_SAVE)
_CPU = {ProfilerActivity.CPU}
_CPU_WITHOUT_WARNINGS = {ProfilerActivity.CPU, ProfilerActivity.CUDA, ProfilerActivity.XPU}
"""CPU activity together with the devices': torch 2.13 warns twice per evaluation where the CPU is paused alone."""


class TorchProfiler(Callback):
    """Run `kinetoscope.torch.profile` by the Profiler's schedule.

    At the end of each window the trace is written to ``folder/filename`` and added to the Profiler's cycle; without
    ``filename`` it is only added. Both may use the variables of `FileNameFormat`. ``use_gzip`` compresses.
    ``record_shapes``, ``profile_memory``, ``with_stack``, ``with_flops``, ``activities`` and ``experimental_config``
    are passed to torch's profiler. The training thread only waits for Kineto to stop. The file is written on the writer
    thread, and uploaded under the remote names as `JSONTraceHandler` does; ``overwrite`` and ``num_traces_to_keep`` are
    as there.

    Raises:
        FileNameError: A name has an unknown variable.
        SettingsError: Arguments that cannot work together.
    """

    def __init__(
        self,
        folder: str = "{run_name}/torch_traces",
        filename: str | None = "rank{rank}.{batch}.pt.trace.json",
        remote_file_name: str | None = "{run_name}/torch_traces/rank{rank}.{batch}.pt.trace.json",
        memory_filename: str | None = None,
        memory_remote_file_name: (
            str | None
        ) = "{run_name}/torch_memory_traces/rank{rank}.{batch}.pt.trace.memory.html",
        *,
        overwrite: bool = False,
        use_gzip: bool = False,
        record_shapes: bool = False,
        profile_memory: bool = True,
        with_stack: bool = False,
        with_flops: bool = True,
        num_traces_to_keep: int = -1,
        activities: Iterable[Activity] | None = None,
        experimental_config: Any = None,
    ) -> None:
        self._remote = RemoteName(remote_file_name, "remote_file_name")
        self._memory_remote = RemoteName(memory_remote_file_name, "memory_remote_file_name")
        if memory_filename:
            _check_memory_options(record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack)
        if use_gzip and not filename:
            raise SettingsError("use_gzip=True has no effect without a filename. Leave one of them out.")
        if filename and use_gzip and not filename.endswith(".gz"):
            filename += ".gz"
        if use_gzip:
            self._remote.add_suffix(".gz")
        self._writes_trace, self._needs_folder = bool(filename), bool(filename or memory_filename)
        names = filename or ".rank{rank}.{batch}.pt.trace.json"
        self._folder = TraceFolder(folder, names, overwrite=overwrite, num_traces_to_keep=num_traces_to_keep)
        self._memory_filename = FileNameFormat(memory_filename or "", "memory_filename")
        self._options: dict[str, Any] = {
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
            "activities": None if activities is None else list(activities),
            "experimental_config": experimental_config,
        }
        select_activities(self._options["activities"])
        self._num_windows = self._first_batch = 0
        self.profiler: profile | None = None
        """Running `kinetoscope.torch.profile`; None before the run starts and after it ends."""

    def set_defaults(self, folder: str, *, overwrite: bool, num_traces_to_keep: int) -> None:
        """Set the folder and the rules that were left at their defaults, when a Profiler is assembled."""
        self._folder.set_defaults(folder, overwrite=overwrite, num_traces_to_keep=num_traces_to_keep)

    @property
    def needs_folder(self) -> bool:
        """True if it writes files and was given no folder."""
        return self._needs_folder and self._folder.is_default

    @property
    def saved_traces(self) -> list[Any]:
        """Kept traces: ``[(Timestamp, [Path of each rank])]``."""
        return self._folder.saved_traces

    def init(self, state: ProfiledState, logger: object) -> None:
        """Open the trace folder and the uploads of the run."""
        run = state.profiler.run
        self._run_name, self._ranks = state.run_name, run.ranks
        if not self._needs_folder:
            return
        run.replace_attempt(self._folder.open(state.run_name, run.ranks, run.attempt))
        self._uploads = get_uploads(run, self._folder.run_folder)
        self._remote.open(run, state.run_name, self._uploads)
        if self._memory_filename.text:
            self._memory_remote.open(run, state.run_name, self._uploads)

    def make_profile(self, state: ProfiledState, get_action: Callable[[], ProfilerAction]) -> profile:
        """Return a torch profiler with these settings.

        Args:
            state: State of the run that gets the windows.
            get_action: Returns the action of the current batch.
        """
        self._first_batch = plain_count(state.timestamp.batch)
        return profile(
            schedule=lambda step: _TORCH_ACTIONS[get_action()],
            on_trace_ready=lambda torch_profiler: self._deliver(state, torch_profiler.pop_results()),
            **self._options,
        )

    def fit_start(self, state: ProfiledState, logger: object) -> None:
        """Start the torch profiler."""
        if self._options["with_stack"]:
            import_compiler()  # not in the first recorded step
        self.profiler = self.make_profile(state, state.profiler.get_action)
        try:
            self.profiler.start()
        except MissingNameError as error:
            _log.warning("No operators are recorded. %s", error)
            self.profiler = None

    def epoch_start(self, state: ProfiledState, logger: object) -> None:
        """Save a window that ends with the epoch, and apply the schedule again."""
        if self.profiler is not None:
            self.save_if_recording_ends(state)
            self._advance(state, self.profiler.follow_schedule)

    @skippable
    def batch_end(self, state: ProfiledState, logger: object) -> None:
        """Advance torch's schedule by a step."""
        if self.profiler is not None:
            self.save_if_recording_ends(state)
            self.profiler.end_step()
            self.profiler.step_num = (
                plain_count(state.timestamp.batch) - self._first_batch - 1
            )  # skipped batches are not counted by torch
            self._advance(state, self.profiler.step)

    def _advance(self, state: ProfiledState, advance: Callable[[], None]) -> None:
        """Call ``advance``, within a span if Kineto starts or stops, since training waits for that.

        Signals are blocked while it stops: before the writer thread has the results, they would lose them.
        """
        assert self.profiler is not None
        action = self.profiler.current_action
        if action is TorchAction.RECORD_AND_SAVE:
            with _profiler_span(state, "kinetoscope/stop"), hold_signals():
                advance()
        elif action not in _RECORDING and _TORCH_ACTIONS[state.profiler.get_action()] in _RECORDING:
            with _profiler_span(state, "kinetoscope/start"):
                advance()
        else:
            advance()

    def eval_start(self, state: ProfiledState, logger: object) -> None:
        """Pause recording for an evaluation between batches."""
        self._toggle(state, is_on=False)

    def eval_end(self, state: ProfiledState, logger: object) -> None:
        """Resume recording after an evaluation."""
        self._toggle(state, is_on=True)

    def _toggle(self, state: ProfiledState, *, is_on: bool) -> None:
        """Switch recording off for an evaluation between batches, and on after it."""
        if self.profiler is not None and state.profiler.run.is_paused:
            activities = set(self.profiler.activities)
            self.profiler.toggle_collection_dynamic(is_on, _CPU_WITHOUT_WARNINGS if activities == _CPU else activities)

    def close(self, state: ProfiledState, logger: object) -> None:
        """Save the open window and stop the torch profiler."""
        torch_profiler, self.profiler = self.profiler, None
        if torch_profiler is not None:
            with hold_signals():
                torch_profiler.finish_window()
            torch_profiler.stop()

    def post_close(self) -> None:
        """Close the trace folder."""
        self._folder.close()

    def save_if_recording_ends(self, state: ProfiledState) -> None:
        """Save a recording that ends without ACTIVE_AND_SAVE, since Kineto cannot pause.

        This happens at an epoch's end, or by a user's schedule.
        """
        assert self.profiler is not None
        next_action = _TORCH_ACTIONS[state.profiler.get_action()]
        if self.profiler.current_action is TorchAction.RECORD and next_action not in _RECORDING:
            with _profiler_span(state, "kinetoscope/stop"), hold_signals():
                self.profiler.finish_window()

    def _deliver(self, state: ProfiledState, results: KinetoResults | None) -> None:
        """Add a finished window's trace, and its memory timeline, to the run's cycle."""
        if results is not None:
            run = state.profiler.run
            run.contribute(partial(self._save, run, results, state.timestamp, self._num_windows))
            if self._memory_filename.text:
                run.contribute(partial(self._save_memory, results, state.timestamp))
            self._num_windows += 1

    def process_results(self, results: KinetoResults) -> None:
        """Handle a window that has been saved, on the writer thread; subclasses may override it.

        It is not called in a run that redacts its output, because the results have all names.
        """

    def _save(
        self, run: RunContext, results: KinetoResults, timestamp: Moment, window: int, contributions: Contributions
    ) -> None:
        """Write a window's trace; after an error it may be called again."""
        temporary = run.temporary_folder(contributions.cycle)
        if self._writes_trace:
            with self._folder.new_trace(window, timestamp) as path:
                results.export_chrome_trace(path, temporary_folder=temporary, redact=run.redactor)
            contributions.files.append(path)
            self._remote.put(path, timestamp)
            expired = self._folder.expire()
            contributions.afterwards.extend(partial(self._uploads.delete_when_uploaded, old) for old in expired)
        else:
            path = temporary / f"window{window}.pt.trace.json"
            results.export_chrome_trace(path, temporary_folder=temporary, redact=run.redactor)
            contributions.add_temporary(path)
        if run.redactor is None:
            self.process_results(results)

    def _save_memory(self, results: KinetoResults, timestamp: Moment, contributions: Contributions) -> None:
        """Write a window's memory timeline."""
        del contributions  # the timeline is a web page, not a trace
        name = self._memory_filename.fill(self._run_name, self._ranks, timestamp)
        results.memory_timeline().save(self._folder.path / name)
        self._memory_remote.put(self._folder.path / name, timestamp)


def _profiler_span(state: ProfiledState, name: str) -> Marker:
    return state.profiler.marker(name, categories=(PROFILER_CATEGORY,))


def _check_memory_options(**options: bool) -> None:
    if needed := format_missing_options(options):
        raise SettingsError(f"A memory timeline (memory_filename) needs {needed} as well.")
