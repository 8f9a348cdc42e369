"""``log_to=`` with the real trackers, which are not in every environment: `make test-trainers`."""

import importlib
import importlib.util
import json
import os
import struct
import time
from pathlib import Path

import pytest

import kinetoscope

torch = pytest.importorskip("torch")
HAS_ALL = os.environ.get("KINETOSCOPE_REQUIRE_TRAINERS") == "1"
NUM_ROWS = 20
METRICS = {"kinetoscope/step_ms", "kinetoscope/data_wait_ms", "kinetoscope/forward_ms", "kinetoscope/memory_gib"}
SCHEDULE = kinetoscope.cyclic_schedule(warmup=1, active=4, repeat=0, per="run")


def needs(package):
    if importlib.util.find_spec(package) is None:
        assert not HAS_ALL, f"{package} is missing"
        pytest.skip(f"needs {package}")
    return importlib.import_module(package)


def train(out, log_to, log=lambda row: None, **options):
    """A training run of 20 steps with four windows, which logs a row itself in each step."""
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    batches = torch.utils.data.DataLoader(torch.randn(NUM_ROWS * 4, 8), batch_size=4)
    with kinetoscope.profile(out, schedule=SCHEDULE, system=False, quiet=True, log_to=log_to, **options) as profiler:
        for number, batch in enumerate(profiler.batches(batches)):
            with profiler.marker("SECRET layer"):
                loss = model(batch).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            log({"loss": number})


def rows_of_wandb(folder):
    """Return the rows in W&B's file of a run: records in blocks of 32 KiB, as LevelDB's log has them."""
    pb = importlib.import_module("wandb.proto.wandb_internal_pb2")
    (path,) = Path(folder).glob("wandb/offline-run-*/run-*.wandb")
    content, rows, pieces, place = path.read_bytes(), [], b"", 7
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        pieces += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # the whole of a record, or its end
            record, pieces = pb.Record.FromString(pieces), b""
            if record.WhichOneof("record_type") == "history":
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                rows.append({name: json.loads(value) for name, value in items.items() if name[0] != "_"})
    return rows, content


@pytest.fixture(autouse=True)
def a_report_may_take_long(monkeypatch):
    monkeypatch.setattr("kinetoscope.handlers.top_finding.MAX_SECONDS_WITH_REPORT", 150.0)


@pytest.fixture
def wandb_run(tmp_path, monkeypatch):
    wandb = needs("wandb")
    for variable in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    run = wandb.init(project="tests", mode="offline", dir=str(tmp_path), settings=wandb.Settings(silent=True))
    yield run
    run.finish()
    wandb.teardown()


def test_wandb_run_keeps_its_rows_and_gets_kinetoscope_metrics_in_them(wandb_run, tmp_path):
    train(tmp_path / "run", wandb_run, wandb_run.log)
    wandb_run.finish()
    importlib.import_module("wandb").teardown()  # its process has written everything when it ends
    until = time.monotonic() + 60
    while len((read := rows_of_wandb(tmp_path))[0]) < NUM_ROWS and time.monotonic() < until:
        time.sleep(0.1)
    rows, content = read
    assert [row["loss"] for row in rows if "loss" in row] == list(range(NUM_ROWS))
    metric_rows = [row for row in rows if "kinetoscope/step_ms" in row]
    assert metric_rows
    assert all(row.keys() >= METRICS for row in metric_rows)
    assert b"findings.txt" in content or b"kinetoscope/findings" in content
    assert f"kinetoscope-{wandb_run.id}".encode() in content
    assert (tmp_path / "run" / "report.html").exists()


def test_finished_wandb_run_is_reported_once_and_training_continues(wandb_run, tmp_path, caplog):
    wandb_run.finish()
    train(tmp_path / "run", wandb_run)
    (message,) = [record.getMessage() for record in caplog.records if record.name == "kinetoscope"]
    assert message.startswith("WandbRun of log_to failed")


def test_a_run_of_mlflow_has_numbers_of_each_window_and_the_report(tmp_path, monkeypatch):
    mlflow = needs("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    with mlflow.start_run() as run:
        train(tmp_path / "run", run)
    client = mlflow.MlflowClient()
    history = client.get_metric_history(run.info.run_id, "kinetoscope/step_ms")
    assert [metric.step for metric in history] == [5, 10, 15, 20]
    assert all(metric.value > 0 for metric in history)
    assert client.get_run(run.info.run_id).data.metrics.keys() >= METRICS
    names = {file.path for file in client.list_artifacts(run.info.run_id, "kinetoscope")}
    assert names == {"kinetoscope/findings.txt", "kinetoscope/report.html"}


def test_a_writer_of_tensorboard_has_numbers_of_each_window_and_the_findings(tmp_path):
    needs("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "board")) as writer:
        train(tmp_path / "run", writer)
    board = EventAccumulator(str(tmp_path / "board"))
    board.Reload()
    assert set(board.Tags()["scalars"]) >= METRICS
    assert [event.step for event in board.Scalars("kinetoscope/step_ms")] == [5, 10, 15, 20]
    assert "kinetoscope/findings/text_summary" in board.Tags()["tensors"]


def test_redact_applies_to_what_trackers_get(tmp_path, monkeypatch):
    mlflow = needs("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    with mlflow.start_run() as run:
        train(tmp_path / "SECRET run", run, redact=lambda text: text.replace("SECRET", "redacted"))
    written = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert any(path.name == "report.html" for path in written)
    assert not [path for path in written if b"SECRET" in path.read_bytes()]
