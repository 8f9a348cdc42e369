"""Window controller of a run: it opens and closes profiling windows as the position of training advances.

The action of a step is what the schedule plans, unless a recording on demand or the limit of memory changes it. In an
evaluation that pauses recording, no action takes effect.
"""

from functools import partial

from kinetoscope.core.job.event import Event
from kinetoscope.core.job.state import RunState
from kinetoscope.core.job.timestamp import Moment, plain_count
from kinetoscope.formats.trace_names import WATCHED_PHASE
from kinetoscope.recording.markers import compiler
from kinetoscope.recording.markers.marker import Marker
from kinetoscope.recording.markers.process import hold_signals
from kinetoscope.recording.markers.recorder_types import ACTION_BITS
from kinetoscope.recording.markers.schedule import CyclicSchedule, ProfilerAction
from kinetoscope.recording.run.scopes import Evaluation, ScopeStack
from kinetoscope.recording.run.services import RunServices
from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.recording.window.event_listeners import EventListeners
from kinetoscope.recording.window.memory_limit import MemoryLimit
from kinetoscope.recording.window.on_demand import OnDemandRecording
from kinetoscope.recording.window.slow_step_watch import SlowStepWatch
from kinetoscope.recording.window.source_events import PHASE_NAMES, PHASES_TID, PHASES_TRACK, SourceEvent


class WindowController:
    """Controller of the windows of a run with these ``services``. A training loop reports the position of training."""

    def __init__(self, services: RunServices) -> None:
        self._services, self._window = services, services.window
        self._recorder, self._state = services.recorder, services.state
        self._slow_steps: SlowStepWatch | None = None
        self._skips_until = 0
        self.scopes: ScopeStack = ScopeStack()
        self.on_demand: OnDemandRecording = OnDemandRecording(services.pulse, services.ranks.rank)
        self.memory_limit: MemoryLimit = MemoryLimit()
        self.action: ProfilerAction = ProfilerAction.SKIP
        """The action of the current batch, once the run has started."""
        self.first_batch: int = plain_count(self._state.timestamp.batch)
        """The batch at which this process started: above 0 if the run was resumed."""
        self.resumption_batch: int = 0
        self.resumption_epoch: int = 0
        self.longest_epoch: int = 0
        """The number of batches of the longest epoch."""
        self.adds_phases: bool = False
        """True if windows have the phases of the pulse as spans: in a loop without spans of its own."""

    # -- actions ----------------------------------------------------------------------------------------------

    def schedule(self, state: RunState) -> ProfilerAction:
        """Return the action for ``state``.

        If the schedule raises or returns no action, the action is SKIP, and the log has one report.
        """
        action = self._services.guard(self._services.settings.schedule, self._choose_action, (state,))
        return ProfilerAction.SKIP if action is None else action

    def _choose_action(self, state: RunState) -> ProfilerAction:
        action = ProfilerAction(self._services.settings.schedule(state))
        if self.on_demand.request is not None:
            action = self.on_demand.action(plain_count(state.timestamp.batch), action)
        return action if self.memory_limit.share is None else self.memory_limit.next_action(action)

    def advance_action(self) -> ProfilerAction:
        """Choose the action of the current batch; return the action before it.

        It takes effect in `apply_action`, after sources and handlers have had their event.
        """
        before, self.action = self.action, self.schedule(self._state)
        self.update_longest_epoch(self._state.timestamp)
        return before

    def apply_action(self) -> None:
        """Record spans by the current action from now on."""
        timestamp, live = self._state.timestamp, self._services.live
        self._recorder.batch = plain_count(timestamp.batch)
        if began := self._window.enter_epoch(plain_count(timestamp.epoch)):
            live.log_epoch(*began)
        if self._window.set_action(self.action, timestamp):
            if self.adds_phases:
                self._services.pulse.start_phase_log()
            live.log_opened(self._window.num_cycles, timestamp)
            self._services.callbacks.notify_window(is_open=True)
        if self._window.mark_active(self.action, self._recorder.batch):
            live.log_active(self._recorder.batch)
        if self._slow_steps is not None:
            self._slow_steps.set_enabled(self.action is ProfilerAction.SKIP)
        self._skips_until = self._find_end_of_skipping()
        compiler.register_with_dynamo(Marker)

    def update_listeners(self) -> None:
        """Deliver events to handlers with per-event methods by the current action. No window opens."""
        if self._recorder.listener is not None:
            self._recorder.action = ACTION_BITS[self.schedule(self._state)]

    def is_cut_short(self, before: ProfilerAction) -> bool:
        """Return whether recording ends here without a batch that saves. ``before``: the action of the last batch."""
        return before is ProfilerAction.ACTIVE and self.action in (ProfilerAction.SKIP, ProfilerAction.WARMUP)

    def count_idle_steps(self) -> int:
        """Return the number of next steps that are skipped and whose events no callback needs."""
        if self._services.callbacks.needs_all_batches or not self._skips_until or self.on_demand.request is not None:
            return 0
        return self._skips_until - plain_count(self._state.timestamp.batch) - 1

    def _find_end_of_skipping(self) -> int:
        """Return the batch up to which a `CyclicSchedule` skips, so that it need not be called; else 0."""
        schedule = self._services.settings.schedule
        if self.action is not ProfilerAction.SKIP or not isinstance(schedule, CyclicSchedule):
            return 0
        return plain_count(self._state.timestamp.batch) + schedule.num_skipped(self._state)

    # -- position of training ---------------------------------------------------------------------------------

    def resume_at(self, batch_in_epoch: object) -> None:
        """Set the batch of the epoch at which the run was resumed: a schedule's skip counts from here."""
        self.resumption_batch = plain_count(batch_in_epoch)
        self.resumption_epoch = plain_count(self._state.timestamp.epoch)
        self._skips_until = 0
        self._services.pulse.stop_counting()
        self.first_batch = plain_count(self._state.timestamp.batch)

    def update_longest_epoch(self, timestamp: Moment) -> None:
        """Update the length of the longest epoch."""
        self.longest_epoch = max(self.longest_epoch, plain_count(timestamp.batch_in_epoch))

    def start_epoch(self, left_at: Moment | None = None) -> None:
        """Fire the start of an epoch.

        If the epoch before ended while recording was on, save its window, with the timestamp ``left_at`` if that epoch
        was left in its middle.
        """
        before = self.advance_action()
        if self.is_cut_short(before):
            self._services.saving_progress.time_source_stop(self._services.callbacks.fire, Event.EPOCH_START)
            self.save(timestamp=left_at, continues=True)
        else:
            self._services.callbacks.fire(Event.EPOCH_START)
        self.apply_action()

    def end_batch(self, end_ns: int | None = None) -> None:
        """Fire the end of a batch, now or at ``end_ns``, which the timestamp counts. Save a window that ends."""
        timestamp, callbacks = self._state.timestamp, self._services.callbacks
        self.end_step_of_pulse(end_ns)
        if plain_count(timestamp.batch) < self._skips_until and self.on_demand.request is None:
            self.update_longest_epoch(timestamp)  # nothing else changes: a step is cheap
            callbacks.fire(Event.BATCH_END)
            compiler.register_with_dynamo(Marker)
            return
        if self.memory_limit.share is not None:
            self.action = self.memory_limit.ended_action(self.action)
        before = self.advance_action()
        if saves := before is ProfilerAction.ACTIVE_AND_SAVE:
            self._services.saving_progress.time_source_stop(callbacks.fire, Event.BATCH_END)
            self.save(continues=True)
        else:
            callbacks.fire(Event.BATCH_END)
        self.apply_action()
        if saves or before is not self.action:  # the time that a window takes to open or close is in no step
            self._services.pulse.begin_step()

    def end_step_of_pulse(self, end_ns: int | None = None) -> None:
        """End a step in the pulse, now or at ``end_ns``. The timestamp counts it already."""
        self._services.pulse.end_step(self._state.timestamp, is_recorded=self.is_recording, end_ns=end_ns)

    def enter_evaluation(self, *, pauses: bool) -> Evaluation:
        """Open an evaluation. If it ``pauses``, nothing is recorded in it; an open window and open spans stay open."""
        evaluation = self.scopes.push(Evaluation(pauses))
        evaluation.enter()
        if pauses:
            self._recorder.action = 0
        return evaluation

    def end_evaluation(self, evaluation: Evaluation, *, is_running: bool) -> None:
        """End an evaluation. If it paused recording and the run is running, record again by the current action."""
        self.scopes.remove(evaluation)
        evaluation.leave()
        if evaluation.pauses and is_running:
            self._recorder.action = ACTION_BITS[self.action]

    # -- windows ----------------------------------------------------------------------------------------------

    @property
    def is_recording(self) -> bool:
        """True while markers record: a window is open, and neither paused nor skipped."""
        return self._window.is_open and bool(self._recorder.action)

    def save(self, *, measure: bool = True, timestamp: Moment | None = None, continues: bool = False) -> None:
        """Close the window, with ``timestamp`` or the current one, and hand its cycle to the writer thread.

        Args:
            measure: whether to compare the clocks once more before.
            timestamp: the position of training at its end, if it is not the current one.
            continues: whether `apply_action` is called next. Unless that skips, the next window opens in the moment in
                which this one closes: DataLoader workers and other threads always record, and a span that began while
                nothing is recorded would be lost.
        """
        self._services.callbacks.notify_window(is_open=False)
        continues = continues and self.action is not ProfilerAction.SKIP and not self.scopes.is_paused
        if not continues:
            self._recorder.action = 0
        if isinstance(listener := self._recorder.listener, EventListeners):
            listener.close_spans(self._services.clock.monotonic_ns())
        with hold_signals():  # until the writer thread gets the cycle, only this frame refers to its records
            self._close_window(self._state.timestamp if timestamp is None else timestamp, measure, continues)

    def _close_window(self, timestamp: Moment, measure: bool, continues: bool) -> None:
        services = self._services
        if self.adds_phases and self._window.is_open:
            self._add_phases()
        lasting = services.lasting.collect(self._recorder.window)
        following = (self.action, self._state.timestamp) if continues else None
        cycle = self._window.close(self._state.run_name, timestamp, lasting, following)
        if cycle is not None:
            self._track_saving(cycle)
            services.clocks.forward(cycle, services.delivery.submit_cycle, measure=measure)

    def _add_phases(self) -> None:
        """Add spans of the phases on a track of their own: a forward pass need not nest in spans of the loop's."""
        intervals, num_left_out = self._services.pulse.drain_phase_log()
        events = self._window.contributions.events
        events.num_left_out += num_left_out
        if intervals:
            events.tracks[PHASES_TID] = PHASES_TRACK
        for phase, begin_ns, end_ns in intervals:
            events.add(SourceEvent(PHASE_NAMES[phase], WATCHED_PHASE, begin_ns, end_ns, PHASES_TID, {}))

    def _track_saving(self, cycle: Cycle) -> None:
        """Report the fate of a closed window to the spool folder and to the request for it."""
        recorded, live, afterwards = cycle.recorded, self._services.live, cycle.contributions.afterwards
        live.log_closed(recorded.window, recorded.closed_ns, cycle.timestamp, recorded.num_written)
        afterwards.append(partial(live.log_saved, recorded.window))
        if (request := self.on_demand.close_window()) is not None:
            afterwards.append(partial(self.on_demand.report_saved, request))

    # -- slow steps -------------------------------------------------------------------------------------------

    def watch_slow_steps(self) -> None:
        """Keep outlier steps from now on, while nothing is recorded: each in a window of one step."""
        services = self._services
        self._slow_steps = SlowStepWatch(
            services.pulse.writer,
            self._recorder,
            services.clock,
            lambda: (self._state.run_name, services.ranks, self._window.attempt),
            services.delivery.submit_slow_step,
            services.report,
        )

    def stop_slow_steps(self) -> None:
        """Stop keeping outlier steps; those so far are delivered."""
        if self._slow_steps is not None:
            self._slow_steps.stop()
