"""Duration of a phase before the watchdog thread probes it."""

import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.pulse.layout import Phase
from kinetoscope.recording.hangs.hang_watchdog import HANG_VARIABLE, PhaseLimits

S = 1_000_000_000


@pytest.mark.parametrize("text", ["inf", "1e300", "1e10", "nan", "-1", "soon", "", "1e-9"])
def test_training_continues_with_any_value_of_the_hang_variable(text, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv(HANG_VARIABLE, text)
    traces = JSONTraceHandler(str(tmp_path / "traces"))
    with Profiler(lambda _: ProfilerAction.SKIP, traces, quiet=True, hangs=True) as profiler:
        assert [*profiler.batches(range(8))] == [*range(8)]
    assert not [record for record in caplog.records if record.exc_info]


def test_continued_hang_is_reported_again_after_twice_the_time():
    usual = PhaseLimits(30)
    usual.add_steps(100, [(S,) * len(Phase)] * 100)
    usual.extend_after_report(Phase.OTHER, 45 * S)
    usual.extend_after_report(Phase.OTHER, 35 * S)
    usual.extend_after_report(Phase.OTHER, 400 * S, is_after_loop=True)
    assert usual.limits_ns(None)[Phase.OTHER] == 90 * S
    assert usual.limits_ns(None)[Phase.FORWARD] == 30 * S
    assert usual.limits_ns(120)[Phase.OTHER] == 60 * S, "half of what collectives may take"
    after = usual.limits_ns(None, is_after_loop=True)
    assert (after[Phase.OTHER], after[Phase.EVALUATION]) == (800 * S, 30 * S)
