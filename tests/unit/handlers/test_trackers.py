"""``log_to=``: values that trackers get, and failures of a tracker. With real trackers: integration/test_trackers."""

import pytest

import kinetoscope
from kinetoscope.errors import SettingsError
from kinetoscope.handlers.trackers import metrics_of, tracker_of
from kinetoscope.pulse.layout import Phase


class Writer:
    """It has what is used of a SummaryWriter, and is where tensorboardX has it. It fails the first time."""

    __module__ = "tensorboardX.writer"

    def __init__(self):
        self.scalars, self.texts, self.has_failed = {}, {}, False

    def add_scalar(self, name, value, step):
        if not self.has_failed:
            self.has_failed = True
            raise ConnectionError("planted")
        self.scalars.setdefault(name, []).append((step, value))

    def add_text(self, name, text, step):
        self.texts[name] = text

    def flush(self):
        pass


def test_failing_tracker_is_reported_once_and_called_again_in_the_next_window(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("kinetoscope.handlers.top_finding.MAX_SECONDS_WITH_REPORT", 150.0)
    writer = Writer()
    schedule = kinetoscope.cyclic_schedule(warmup=1, active=2, repeat=0, per="run")
    with kinetoscope.profile(tmp_path, schedule=schedule, torch=False, quiet=True, log_to=[writer]) as profiler:
        for _ in profiler.batches(range(10)):  # the last of them is a warm-up
            pass
    assert [step for step, _ in writer.scalars["kinetoscope/step_ms"]] == [6, 9]
    assert [record.getMessage() for record in caplog.records] == [
        "TensorBoardWriter of log_to failed: ConnectionError: planted"
    ]
    names = {path.name for path in (tmp_path / "traces").glob("ep*.json.gz")}
    assert names >= {f"ep0-ba{batch}-rank0.json.gz" for batch in (3, 6, 9)}  # no window was kept back
    assert writer.texts.keys() == {"kinetoscope/findings"}
    assert (tmp_path / "report.html").exists()


def test_metrics_are_means_and_what_is_not_known_is_left_out():
    times = [None] * len(Phase)
    times[Phase.FORWARD] = 1_000_000
    known_once = list(times)
    known_once[Phase.BACKWARD] = 5
    metrics = metrics_of([(2_000_000, tuple(times)), (4_000_000, tuple(known_once))])
    assert metrics["kinetoscope/step_ms"] == 3
    assert metrics["kinetoscope/forward_ms"] == 1
    assert "kinetoscope/backward_ms" not in metrics


@pytest.mark.parametrize("given", ["wandb", 3, [None], object()])
def test_anything_else_is_refused_in_a_sentence(given, tmp_path):
    with pytest.raises(SettingsError, match=r"log_to takes what wandb\.init\(\)"):
        kinetoscope.profile(tmp_path, torch=False, log_to=given)


def test_a_subclass_of_a_writer_is_one():
    class Own(Writer):
        pass

    assert tracker_of(Own())
