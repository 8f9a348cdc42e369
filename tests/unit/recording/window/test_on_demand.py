"""Steps that are requested from outside are recorded, whatever the run's own schedule does."""

import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction, cyclic_schedule
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.record_request import RecordRequest
from kinetoscope.pulse.layout import RequestState
from kinetoscope.pulse.snapshot import read_run_snapshot
from kinetoscope.testing import FakeClock, MemoryTraceHandler

NEVER = cyclic_schedule(skip_first=10**9, per="run")


class Job:
    """A loop of 40 batches that takes requests at the start of some."""

    def __init__(self, folder, schedule=NEVER, requests=(), num_batches=40, calls_step=False):
        self.folder, self.handler = folder, MemoryTraceHandler()
        handlers = [self.handler, JSONTraceHandler(str(folder / "traces"), merged_trace_filename=None)]
        self.profiler = Profiler(schedule, handlers, clock=FakeClock(), quiet=True, strict=True)
        requests = dict(requests)
        self.actions, self.losses = [], []
        with self.profiler as profiler:
            batches = range(num_batches) if calls_step else profiler.batches(range(num_batches))
            for batch in batches:
                if batch in requests:
                    profiler.lifecycle.windows.on_demand.accept(requests[batch])
                self.actions.append(profiler.get_action())
                with profiler.marker("train"):
                    self.losses.append(batch * 2)
                if calls_step:
                    profiler.step()
        (snapshot,) = read_run_snapshot(folder).last
        self.request = snapshot.header.request

    @property
    def recorded(self):
        """The batches of each window that were to be kept."""
        windows, last = [], None
        for batch, action in enumerate(self.actions):
            if action in (ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE):
                if last is not ProfilerAction.ACTIVE:
                    windows.append([])
                windows[-1].append(batch)
            last = action
        return windows

    @property
    def files(self):
        return sorted(path.name for path in (self.folder / "traces").glob("ep*.json"))


def request(first_step, num_steps=3, sequence=1, ranks=None):
    return RecordRequest(sequence, num_steps, first_step, 0, ranks)


@pytest.mark.parametrize("calls_step", [False, True])
def test_the_steps_that_are_asked_for_are_recorded_after_one_that_warms_up(tmp_path, calls_step):
    job = Job(tmp_path, requests=[(5, request(20))], calls_step=calls_step)
    assert job.recorded == [[20, 21, 22]]
    assert job.actions[19] is ProfilerAction.WARMUP
    assert job.files == ["ep0-ba23-rank0.json"]
    assert (job.request.sequence, job.request.state, job.request.first_step) == (1, RequestState.SAVED, 20)
    assert len(job.handler.cycles) == 1
    assert job.losses == [batch * 2 for batch in range(40)]


def test_one_after_the_other_and_each_in_a_window_of_its_own(tmp_path):
    job = Job(tmp_path, requests=[(5, request(10)), (14, request(20, sequence=2)), (30, request(32, 1, sequence=3))])
    assert job.recorded == [[10, 11, 12], [20, 21, 22], [32]]
    assert (job.request.sequence, job.request.state) == (3, RequestState.SAVED)


def test_the_schedules_own_windows_are_left_alone(tmp_path):
    schedule = cyclic_schedule(skip_first=9, warmup=1, active=4, repeat=1, per="run")
    job = Job(tmp_path, schedule, requests=[(3, request(20))])
    assert job.recorded == [[10, 11, 12, 13], [20, 21, 22]]


@pytest.mark.parametrize("first_step", [10, 11, 13, 14])
def test_steps_within_a_window_of_the_schedules_wait_until_it_is_over(tmp_path, first_step):
    schedule = cyclic_schedule(skip_first=9, warmup=1, active=4, repeat=1, per="run")
    job = Job(tmp_path, schedule, requests=[(3, request(first_step))])
    assert job.recorded == [[10, 11, 12, 13], [15, 16, 17]]
    assert job.actions[14] is ProfilerAction.WARMUP
    assert (job.request.state, job.request.first_step) == (RequestState.SAVED, 15)


def test_between_windows_that_follow_each_other_one_skipped_step_is_enough(tmp_path):
    schedule = cyclic_schedule(wait=1, warmup=1, active=4, repeat=0, per="run")
    job = Job(tmp_path, schedule, requests=[(3, request(10))])
    assert [13, 14, 15] in job.recorded
    assert (job.request.state, job.request.first_step) == (RequestState.SAVED, 13)


def test_a_schedule_that_skips_no_step_for_long_refuses(tmp_path):
    schedule = cyclic_schedule(wait=0, warmup=0, active=4, repeat=0, per="run")
    job = Job(tmp_path, schedule, requests=[(3, request(10))], num_batches=1100)
    assert job.request.state is RequestState.REFUSED


def test_a_rank_that_is_past_the_first_step_says_that_it_is_late(tmp_path):
    job = Job(tmp_path, requests=[(20, request(12))])
    assert job.recorded == []
    assert job.request.state is RequestState.LATE


def test_one_that_others_are_asked_for_is_none_of_this_ranks(tmp_path):
    job = Job(tmp_path, requests=[(5, request(20, ranks=frozenset([3, 7])))])
    assert job.recorded == []
    assert job.request.sequence == 0


def test_a_second_request_before_the_first_is_over_is_refused(tmp_path):
    job = Job(tmp_path, requests=[(5, request(20)), (10, request(30, sequence=2))])
    assert job.recorded == [[20, 21, 22]]
    refused = Job(tmp_path / "refused", requests=[(5, request(38, 10)), (10, request(30, sequence=2))])
    assert refused.recorded == [[38, 39]]


def test_records_at_the_end_of_training_are_saved(tmp_path):
    job = Job(tmp_path, requests=[(5, request(37, 10))])
    assert job.recorded == [[37, 38, 39]]
    assert job.request.state is RequestState.SAVED


def test_at_most_20_in_an_hour(tmp_path):
    requests = [(2 + 4 * number, request(4 + 4 * number, 1, sequence=1 + number)) for number in range(25)]
    job = Job(tmp_path, requests=requests, num_batches=110)
    assert len(job.recorded) == 20
    assert (job.request.sequence, job.request.state) == (25, RequestState.REFUSED)


def test_the_file_of_requests_is_for_its_user_only(tmp_path):
    Job(tmp_path)
    path = tmp_path / "pulse" / "record.request"
    assert path.stat().st_mode & 0o777 == 0o600
    assert RunFolder(tmp_path).read("pulse/record.request") == bytes(512)
