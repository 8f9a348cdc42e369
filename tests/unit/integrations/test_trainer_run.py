"""A run that is driven by a trainer's events: driven here as a trainer would, over a real loop."""

import pytest

import kinetoscope
from kinetoscope import JSONTraceHandler, Timestamp
from kinetoscope.errors import FolderNotEmptyError
from kinetoscope.integrations.arguments import ProfileArguments
from kinetoscope.integrations.trainer_run import TrainerRun
from support.autoinstrumented_runs import frame_of

torch = pytest.importorskip("torch")
SCHEDULE = kinetoscope.cyclic_schedule(warmup=1, active=3, repeat=0, per="run")


def run_of(folder, **options):
    usual = {"torch": False, "system": False, "quiet": True, "schedule": SCHEDULE}
    return TrainerRun(ProfileArguments(folder, **{**usual, **options}))


def epoch(run, loader, model, evaluates=False):
    run.on_epoch(True, len(loader))
    for batch in loader:
        model(batch).sum().backward()
        run.on_step()
    if evaluates:
        run.on_evaluation(True)
        for batch in loader:
            model(batch)
        run.on_evaluation(False)
    run.on_epoch(False)


@pytest.fixture
def loader():
    return torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=1)


@pytest.fixture
def model():
    return torch.nn.Linear(4, 1)


def test_steps_epochs_and_evaluations_are_counted(tmp_path, loader, model):
    run = run_of(tmp_path)
    run.start(Timestamp())
    for _ in range(2):
        epoch(run, loader, model, evaluates=True)
    run.end(clean=True)
    steps = frame_of(tmp_path)
    assert steps["step"].to_list() == list(range(16))
    assert steps["epoch"].to_list() == [0] * 8 + [1] * 8
    assert [step for step, time_ns in zip(steps["step"], steps["evaluation_ns"], strict=True) if time_ns] == [8]
    assert steps["data_wait_ns"].min() > 0
    assert kinetoscope.analyze(tmp_path).run["num_steps"] == 12  # four windows of three


def test_nothing_is_done_before_the_training_and_after_it(tmp_path, loader, model):
    run = run_of(tmp_path / "run")
    for _ in range(2):
        epoch(run, loader, model, evaluates=True)
        assert not run.is_running
        run.end(clean=True)
        run.start(Timestamp())
        run.end(clean=True)


def test_training_left_open_is_saved_when_the_next_one_starts(tmp_path, loader, model, caplog):
    run = run_of(tmp_path)
    run.start(Timestamp())
    run.on_epoch(True, 8)
    for _ in range(3):
        run.on_step()
    run.on_evaluation(True)
    run.start(Timestamp())  # no warning: the trainer has no way to report an end
    epoch(run, loader, model)
    run.end(clean=True)
    assert len(frame_of(tmp_path)) == 3
    assert len(frame_of(tmp_path / "2")) == 8
    assert not caplog.records


def test_a_resumed_training_counts_from_where_it_was(tmp_path, loader, model):
    run = run_of(tmp_path, schedule=kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=2))
    run.start(Timestamp(batch=13, epoch=1, batch_in_epoch=5), 8)
    for _ in range(3):
        run.on_step()
    run.on_epoch(False)
    epoch(run, loader, model)
    run.end(clean=True)
    steps = frame_of(tmp_path)
    assert steps["step"].to_list() == list(range(13, 24))
    assert steps["epoch"].to_list() == [1] * 3 + [2] * 8
    names = sorted(path.name for path in (tmp_path / "traces").glob("ep*.json.gz"))
    assert names == ["ep1-ba16-rank0.json.gz", "ep2-ba20-rank0.json.gz"]


def test_source_that_cannot_start_reports_it_before_training(tmp_path):
    (tmp_path / "run" / "traces").mkdir(parents=True)
    (tmp_path / "run" / "traces" / "other.json").write_text("[]")
    with pytest.raises(FolderNotEmptyError):
        run_of(tmp_path, handlers=[JSONTraceHandler(str(tmp_path / "run" / "traces"))]).start(Timestamp())


class Breaks(kinetoscope.Callback):
    def epoch_start(self, state, logger):
        raise RuntimeError("planted")


def test_internal_error_is_logged_and_training_continues(tmp_path, loader, model, caplog):
    run = run_of(tmp_path, sources=[Breaks()])
    run.start(Timestamp())
    epoch(run, loader, model)
    run.end(clean=True)
    assert ["planted" in record.getMessage() for record in caplog.records] == [True]
    assert len(frame_of(tmp_path)) == 8


def test_with_strict_an_error_is_raised(tmp_path):
    run = run_of(tmp_path, sources=[Breaks()], strict=True)
    run.start(Timestamp())
    with pytest.raises(RuntimeError, match="planted"):
        run.on_epoch(True, 8)
    run.end(clean=False)
