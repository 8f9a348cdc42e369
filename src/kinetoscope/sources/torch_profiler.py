"""sources: torch's operators and kernels. Each cycle gets a Kineto trace."""

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
"""torch 2.13 warns twice per evaluation where the CPU is paused without both, also if neither is recorded."""


class TorchProfiler(Callback):
    """Runs `kinetoscope.torch.profile` by the Profiler's schedule.

    At the end of each window the trace is written to ``folder/filename`` and joins the Profiler's cycle; with no
    ``filename`` it only joins the cycle. Both may use the variables of `FileNameFormat`. ``use_gzip`` compresses.
    ``record_shapes``, ``profile_memory``, ``with_stack``, ``with_flops``, ``activities`` and ``experimental_config``
    are those of torch's profiler.
    The training thread waits for Kineto's stop only. The file is written on the writer thread, and uploaded under the
    remote names as `JSONTraceHandler` does.

    Raises `FileNameError` and `SettingsError` for arguments that cannot work; ``overwrite`` and
    ``num_traces_to_keep`` as for `JSONTraceHandler`.
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
        """The `kinetoscope.torch.profile` that runs; None before the run has begun and after it has ended."""

    def set_defaults(self, folder: str, *, overwrite: bool, num_traces_to_keep: int) -> None:
        """Called by whoever assembles a Profiler: sets the folder and the rules that were left at their defaults."""
        self._folder.set_defaults(folder, overwrite=overwrite, num_traces_to_keep=num_traces_to_keep)

    @property
    def needs_folder(self) -> bool:
        """Whether it was given no folder of its own."""
        return self._needs_folder and self._folder.is_default

    @property
    def saved_traces(self) -> list[Any]:
        """``[(Timestamp, [Path of each rank])]`` of the traces that are kept."""
        return self._folder.saved_traces

    def init(self, state: ProfiledState, logger: object) -> None:
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
        """A torch profiler with these settings, which follows ``get_action`` and gives its windows to the run of
        ``state``.
        """
        self._first_batch = plain_count(state.timestamp.batch)
        return profile(
            schedule=lambda step: _TORCH_ACTIONS[get_action()],
            on_trace_ready=lambda torch_profiler: self._deliver(state, torch_profiler.pop_results()),
            **self._options,
        )

    def fit_start(self, state: ProfiledState, logger: object) -> None:
        if self._options["with_stack"]:
            import_compiler()  # here rather than in the first step that is recorded
        self.profiler = self.make_profile(state, state.profiler.get_action)
        try:
            self.profiler.start()
        except MissingNameError as error:
            _log.warning("No operators are recorded. %s", error)
            self.profiler = None

    def epoch_start(self, state: ProfiledState, logger: object) -> None:
        if self.profiler is not None:
            self.save_if_recording_ends(state)
            self._advance(state, self.profiler.follow_schedule)

    @skippable
    def batch_end(self, state: ProfiledState, logger: object) -> None:
        if self.profiler is not None:
            self.save_if_recording_ends(state)
            self.profiler.end_step()
            self.profiler.step_num = plain_count(state.timestamp.batch) - self._first_batch - 1  # some were skipped
            self._advance(state, self.profiler.step)

    def _advance(self, state: ProfiledState, advance: Callable[[], None]) -> None:
        """Training waits while Kineto starts or stops; the trace shows how long. A signal waits while it stops: before
        the writer thread has the results, it would lose them."""
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
        self._toggle(state, is_on=False)

    def eval_end(self, state: ProfiledState, logger: object) -> None:
        self._toggle(state, is_on=True)

    def _toggle(self, state: ProfiledState, *, is_on: bool) -> None:
        """Switches recording off for an evaluation between batches, and on after it."""
        if self.profiler is not None and state.profiler.run.is_paused:
            activities = set(self.profiler.activities)
            self.profiler.toggle_collection_dynamic(is_on, _CPU_WITHOUT_WARNINGS if activities == _CPU else activities)

    def close(self, state: ProfiledState, logger: object) -> None:
        torch_profiler, self.profiler = self.profiler, None
        if torch_profiler is not None:
            with hold_signals():
                torch_profiler.finish_window()
            torch_profiler.stop()

    def post_close(self) -> None:
        self._folder.close()

    def save_if_recording_ends(self, state: ProfiledState) -> None:
        """Saves a recording that ends without ACTIVE_AND_SAVE (at an epoch's end, or by a user's schedule), since
        Kineto cannot pause.
        """
        assert self.profiler is not None
        next_action = _TORCH_ACTIONS[state.profiler.get_action()]
        if self.profiler.current_action is TorchAction.RECORD and next_action not in _RECORDING:
            with _profiler_span(state, "kinetoscope/stop"), hold_signals():
                self.profiler.finish_window()

    def _deliver(self, state: ProfiledState, results: KinetoResults | None) -> None:
        if results is not None:
            run = state.profiler.run
            run.contribute(partial(self._save, run, results, state.timestamp, self._num_windows))
            if self._memory_filename.text:
                run.contribute(partial(self._save_memory, results, state.timestamp))
            self._num_windows += 1

    def process_results(self, results: KinetoResults) -> None:
        """Called with each window on the writer thread, once it is saved; not in a run that redacts what it writes,
        because the results have all names. A subclass may override it."""

    def _save(
        self, run: RunContext, results: KinetoResults, timestamp: Moment, window: int, contributions: Contributions
    ) -> None:
        """Writes a window's trace; after an error it may be called again."""
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
        del contributions  # the timeline is a page, not a trace
        name = self._memory_filename.fill(self._run_name, self._ranks, timestamp)
        results.memory_timeline().save(self._folder.path / name)
        self._memory_remote.put(self._folder.path / name, timestamp)


def _profiler_span(state: ProfiledState, name: str) -> Marker:
    return state.profiler.marker(name, categories=(PROFILER_CATEGORY,))


def _check_memory_options(**options: bool) -> None:
    if needed := format_missing_options(options):
        raise SettingsError(f"A memory timeline (memory_filename) needs {needed} as well.")
