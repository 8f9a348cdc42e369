"""kinetoscope.torch.profile on the CPU: what it records and when, and that it does not harm the process."""

import contextlib
import gc
import threading
import time
import warnings
import weakref

import pytest
import torch
import torch.profiler
from torch.autograd.profiler import KinetoStepTracker

from kinetoscope.errors import ProfilerStateError, ScheduleError
from kinetoscope.torch import _WARNINGS_SHOWN as WARNINGS_SHOWN
from kinetoscope.torch import ProfilerAction, profile, record_function, schedule
from kinetoscope.torch import _KinetoProfile as KinetoProfile
from support.torch_versions import counts_each_free, experimental_config, since_2_13

NONE, WARMUP = ProfilerAction.NONE, ProfilerAction.WARMUP
RECORD, SAVE = ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE


def work() -> None:
    torch.ones(3) + 1


def names_in(results) -> list[str]:
    return [event.trace_name for event in results.events()]


def step_spans(results) -> list[str]:
    return sorted({name for name in names_in(results) if name.startswith("ProfilerStep#")})


def listed(*actions: ProfilerAction):
    """Return a schedule that goes through ``actions`` and stays at the last."""
    return lambda step: actions[min(step, len(actions) - 1)]


def assert_profiling_works() -> None:
    with profile() as profiler:
        work()
    assert "aten::add" in names_in(profiler)


def run(scheduled, num_steps: int, on_trace_ready=None, **options) -> profile:
    with profile(schedule=scheduled, on_trace_ready=on_trace_ready, **options) as profiler:
        for _ in range(num_steps):
            work()
            profiler.step()
    return profiler


def test_without_a_schedule_everything_between_start_and_stop_is_one_window():
    windows = []
    with profile(on_trace_ready=lambda profiler: windows.append(names_in(profiler))) as profiler:
        work()
        profiler.step()
        work()
    [names] = windows
    assert names.count("aten::add") == 2
    assert not any(name.startswith("ProfilerStep") for name in names)


def test_each_window_has_the_steps_of_its_schedule():
    windows = []
    run(schedule(wait=1, warmup=1, active=2), 9, lambda profiler: windows.append(step_spans(profiler)))
    assert windows == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]


def test_a_run_that_ends_in_mid_window_hands_it_over():
    windows = []
    run(schedule(wait=0, warmup=1, active=9), 4, lambda profiler: windows.append(step_spans(profiler)))
    assert windows == [[f"ProfilerStep#{step}" for step in (1, 2, 3, 4)]]


def test_a_run_that_ends_in_wait_or_warm_up_keeps_the_last_finished_window():
    for num_steps in (4, 5):
        profiler = run(schedule(wait=1, warmup=1, active=2), num_steps)
        assert step_spans(profiler) == ["ProfilerStep#2", "ProfilerStep#3"]


def test_results_taken_are_exported_while_the_next_window_is_recorded(tmp_path):
    taken, threads = [], []

    def take(profiler) -> None:
        results = profiler.pop_results()
        taken.append(results)
        threads.append(threading.Thread(target=results.export_chrome_trace, args=(tmp_path / f"{len(taken)}.json",)))
        threads[-1].start()

    with pytest.warns(UserWarning, match="warmup"):
        always = schedule(wait=0, warmup=0, active=1)
    run(always, 6, take)
    for thread in threads:
        thread.join()
    assert [step_spans(results) for results in taken] == [[f"ProfilerStep#{step}"] for step in range(7)]
    for number, results in enumerate(taken):
        assert f'"ProfilerStep#{number}"' in (tmp_path / f"{number + 1}.json").read_text()
        assert "aten::add" in {row.key for row in results.key_averages()} or number == 6


def test_taken_results_are_gone_from_the_profiler():
    with profile() as profiler:
        work()
    assert "aten::add" in names_in(profiler.pop_results())
    assert profiler.pop_results() is None
    with pytest.raises(ProfilerStateError, match="no window is finished"):
        profiler.key_averages()


def test_finish_window_delivers_the_window_and_the_next_step_starts_a_new_one():
    windows = []
    with profile(schedule=listed(RECORD), on_trace_ready=lambda p: windows.append(step_spans(p))) as profiler:
        profiler.step()
        profiler.finish_window()
        profiler.finish_window()
        assert profiler.current_action is NONE
        assert windows == [["ProfilerStep#0", "ProfilerStep#1"]]
        profiler.step()
    assert windows[1:] == [["ProfilerStep#2"]]


def test_finish_window_works_without_a_schedule():
    windows = []
    with profile(on_trace_ready=lambda profiler: windows.append(names_in(profiler))) as profiler:
        work()
        profiler.finish_window()
        work()
    assert [names.count("aten::add") for names in windows] == [1]


def test_follow_schedule_calls_the_schedule_again_for_the_same_step():
    action = NONE
    with profile(schedule=lambda step: action, on_trace_ready=lambda profiler: None) as profiler:
        profiler.step()
        action = RECORD
        profiler.follow_schedule()
        profiler.follow_schedule()
        work()
        assert (profiler.step_num, profiler.current_action) == (1, RECORD)
    assert step_spans(profiler) == ["ProfilerStep#1"]
    assert names_in(profiler).count("aten::add") == 1


@pytest.mark.parametrize("before", ["ours", "stock"])
def test_second_profiler_of_a_process_is_refused_and_the_first_continues(before):
    outer = profile() if before == "ours" else torch.profiler.profile()
    with outer:
        with pytest.raises(ProfilerStateError, match="Another torch profiler"), profile():
            pass
        work()
    assert "aten::add" in names_in(outer)


def test_another_profiler_may_come_and_go_during_our_warm_up():
    with profile(schedule=listed(WARMUP, SAVE, NONE)) as profiler:
        with torch.profiler.profile() as stock:
            work()
        profiler.step()
        work()
        profiler.step()
    assert "aten::add" in names_in(stock)
    assert "aten::add" in names_in(profiler)


def on_another_thread(call) -> BaseException | None:
    errors = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors[0] if errors else None


def test_without_a_schedule_any_thread_may_step():
    with profile() as profiler:
        assert on_another_thread(profiler.step) is None
        torch.ones(3)
    assert profiler.step_num == 1
    assert profiler.key_averages()


def test_with_a_schedule_a_step_on_another_thread_is_an_error_there():
    with profile(schedule=schedule(wait=0, warmup=0, active=2)) as profiler:
        assert "thread" in str(on_another_thread(profiler.step))


@pytest.mark.parametrize("kind", [profile, KinetoProfile])
def test_a_stop_before_the_start_is_an_assertion_error_as_in_torch(kind):
    profiler = kind()
    with pytest.raises(AssertionError, match="not been started"):
        profiler.stop()
    profiler.start()
    torch.ones(3)
    profiler.stop()
    assert profiler.key_averages()


def test_a_stop_before_the_start_of_a_schedule_that_waits_first_does_nothing():
    profile(schedule=schedule(wait=1, warmup=1, active=1)).stop()
    with pytest.raises(AssertionError, match="not been started"):
        profile(schedule=schedule(wait=0, warmup=1, active=1)).stop()


@pytest.mark.parametrize(
    ("text", "shown"), [("", {}), ("name", {"backend": "name"}), ('{"a": 1}', {"a": 1}), ("[1]", {})]
)
def test_the_configuration_for_other_backends_is_shown_as_torch_shows_it(text, shown):
    config = experimental_config(custom_profiler_config=text)
    if not hasattr(config, "custom_profiler_config"):
        pytest.skip(f"torch {torch.__version__} takes it and does not show it")
    assert profile(experimental_config=config)._custom_profiler_config == shown
    assert profile()._custom_profiler_config == {}


def test_window_aborted_by_torchs_profiler_is_lost_with_a_warning_and_no_crash():
    handed_over = []
    profiler = profile(on_trace_ready=handed_over.append)
    profiler.start()
    with torch.profiler.profile():
        work()
    with pytest.warns(UserWarning, match="lost"):
        profiler.stop()
    assert handed_over == []
    with pytest.raises(AssertionError, match="was lost"):
        profiler.key_averages()
    assert_profiling_works()


def test_torch_profiler_nested_in_kinetoscope_keeps_its_events_if_stopped_last():
    profiler, stock = profile(), torch.profiler.profile()
    profiler.start()
    work()
    stock.start()
    work()
    with pytest.warns(UserWarning, match="lost"):
        profiler.stop()
    work()
    stock.stop()
    assert [event.name for event in stock.events()].count("aten::add") == 2
    assert_profiling_works()


def test_stopping_twice_and_then_exporting_is_harmless(tmp_path):
    profiler = profile()
    profiler.start()
    work()
    profiler.stop()
    profiler.stop()
    profiler.export_chrome_trace(tmp_path / "trace.json")
    assert "aten::add" in (tmp_path / "trace.json").read_text()


def test_a_profiler_can_start_again_after_it_stopped():
    windows = []
    profiler = profile(on_trace_ready=lambda profiler: windows.append(names_in(profiler)))
    for _ in range(2):
        profiler.start()
        work()
        profiler.stop()
    assert [names.count("aten::add") for names in windows] == [1, 1]


def test_stop_on_another_thread_is_an_error_and_recording_continues():
    errors = []

    def stop() -> None:
        try:
            profiler.stop()
        except ProfilerStateError as error:
            errors.append(str(error))

    with profile() as profiler:
        thread = threading.Thread(target=stop)
        thread.start()
        thread.join()
        work()
    assert "another thread" in errors[0]
    assert "aten::add" in names_in(profiler)


def test_step_after_stop_is_an_error():
    profiler = run(listed(RECORD), 2)
    with pytest.raises(RuntimeError, match="stopped"):
        profiler.step()


def test_export_before_a_window_is_finished_says_what_to_do():
    with profile(schedule=schedule(wait=5, warmup=1, active=1)) as profiler:
        profiler.step()
        with pytest.raises(AssertionError, match="on_trace_ready"):
            profiler.export_chrome_trace("never.json")


def test_a_profiler_that_is_dropped_stops_with_a_resource_warning():
    profiler = profile()
    profiler.start()
    with pytest.warns(ResourceWarning, match="dropped"):
        del profiler
    assert_profiling_works()


@pytest.mark.parametrize("reads_tree", [False, True])
def test_events_are_freed_with_their_profiler_without_gc(reads_tree):
    with profile() as profiler:
        work()
    events = profiler.events()
    children = [(event.cpu_parent, event.cpu_children) for event in events] if reads_tree else []
    is_alive = [weakref.ref(event) for event in events]
    gc.disable()
    try:
        del profiler, events, children
        assert not any(event() for event in is_alive)
    finally:
        gc.enable()


def test_an_event_has_its_parent_also_when_the_list_is_gone():
    with profile() as profiler, record_function("outer"):
        work()
    inner = next(event for event in profiler.events() if event.cpu_parent is not None)
    outer = inner.cpu_parent
    assert inner.cpu_parent is outer
    assert inner in outer.cpu_children
    name = outer.name
    del profiler, outer
    assert inner.cpu_parent.name == name


def test_a_schedule_without_any_step_warns_at_the_end():
    with pytest.warns(UserWarning, match="step\\(\\) was never called"), profile(schedule=listed(NONE)):
        work()


def test_a_handler_that_raises_leaves_the_schedule_intact():
    calls = []

    def handler(profiler) -> None:
        calls.append(step_spans(profiler))
        if len(calls) == 1:
            raise KeyError("handler")

    with pytest.warns(UserWarning, match="warmup"):
        always = schedule(wait=0, warmup=0, active=1)
    for scheduled in (schedule(wait=0, warmup=1, active=1), always):
        calls.clear()
        with profile(schedule=scheduled, on_trace_ready=handler) as profiler:
            for _ in range(6):
                with contextlib.suppress(KeyError):
                    profiler.step()
        assert len(calls) >= 3
        assert all(len(spans) == 1 for spans in calls)


def test_training_exception_is_raised_with_the_handlers_as_a_note():
    def handler(profiler) -> None:
        raise KeyError("no disk")

    with pytest.raises(ZeroDivisionError) as raised, profile(on_trace_ready=handler):
        1 / 0
    assert "no disk" in raised.value.__notes__[0]


@pytest.mark.parametrize("answer", [None, 2, "record"])
def test_a_schedule_that_returns_no_action_changes_nothing(answer):
    windows = []
    actions = {0: RECORD, 1: answer}
    with profile(
        schedule=lambda step: actions.get(step, RECORD), on_trace_ready=lambda p: windows.append(p.step_num)
    ) as profiler:
        with pytest.raises(ScheduleError, match="step 1"):
            profiler.step()
        assert profiler.step_num == 0
        actions[1] = RECORD
        profiler.step()
    assert windows == [1]


@since_2_13
def test_the_trace_id_of_each_window_comes_from_the_callback():
    windows = []
    serial = iter("abcdefgh")
    profiler = run(
        schedule(wait=0, warmup=1, active=1),
        5,
        lambda profiler: windows.append(profiler.get_trace_id()),
        custom_trace_id_callback=lambda: next(serial),
    )
    assert windows == ["a", "b", "c"]
    assert profiler.custom_trace_id_callback() == "d"


@pytest.mark.parametrize(("daemon", "num_counted"), [("1", 5), ("", 0)])
def test_steps_are_counted_for_kinetos_daemon_only(monkeypatch, daemon, num_counted):
    monkeypatch.setenv("KINETO_USE_DAEMON", daemon)
    before = KinetoStepTracker.current_step()
    run(schedule(wait=9, warmup=1, active=1), 5)
    assert KinetoStepTracker.current_step() - before == num_counted


@pytest.mark.parametrize(("num_steps", "acc_events", "num_warnings"), [(1, False, 0), (6, False, 1), (6, True, 0)])
def test_replacement_of_the_previous_cycle_is_reported_when_it_happens(num_steps, acc_events, num_warnings):
    WARNINGS_SHOWN.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(schedule(wait=0, warmup=1, active=1), num_steps, acc_events=acc_events)
    assert len([warning for warning in caught if "clears events" in str(warning.message)]) == num_warnings


def test_collection_can_be_switched_off_and_on_again():
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with profile(activities=cpu) as profiler:
        with record_function("before"):
            work()
        profiler.toggle_collection_dynamic(False, cpu)
        with record_function("hidden"):
            work()
        profiler.toggle_collection_dynamic(True, cpu)
        with record_function("after"):
            work()
    assert {"before", "hidden", "after"} & set(names_in(profiler)) == {"before", "after"}


def test_use_cuda_warns_as_in_torch():
    with pytest.warns(FutureWarning, match="use_cuda"):
        profile(use_cuda=False)


def test_the_same_operators_and_counts_as_stock_on_the_same_work():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))

    def counts(profiler) -> dict[str, int]:
        with profiler:
            for _ in range(3):
                model(torch.ones(4, 8)).sum().backward()
        rows = {row.key: row.count for row in profiler.key_averages()}
        return rows if counts_each_free else {name: count for name, count in rows.items() if name != "[memory]"}

    options = {"record_shapes": True, "profile_memory": True, "with_flops": True}
    counts(profile(**options))  # the first backward makes the gradients, later ones add to them
    assert counts(profile(**options)) == counts(torch.profiler.profile(**options))


def test_a_step_that_records_nothing_takes_less_than_a_fifth_of_torchs():
    def cost_of(module) -> float:
        waiting = module.schedule(wait=1 << 30, warmup=1, active=1)
        with module.profile(schedule=waiting) as profiler, warnings.catch_warnings(action="ignore"):
            return min(_timed(profiler.step) for _ in range(5))

    import kinetoscope.torch

    with warnings.catch_warnings(action="ignore"):
        assert cost_of(kinetoscope.torch) < cost_of(torch.profiler) / 5


def _timed(call) -> float:
    begin = time.perf_counter()
    for _ in range(1000):
        call()
    return time.perf_counter() - begin
