"""Results of `kinetoscope try` in the folder of a run."""

import pytest

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.experiments import (
    AppliedVariant,
    Experiment,
    ExperimentRow,
    decode_experiment,
    read_experiments,
    write_experiment,
)

ROW = ExperimentRow(
    variants=[AppliedVariant("num_workers", 4), AppliedVariant("fused", True)],
    verdict="faster",
    reason="the interval is below 0",
    code="DataLoader(..., num_workers=4)",
    change=-0.25,
    interval=(-0.3, -0.2),
)


def written(folder, name, experiment):
    run = RunFolder(folder)
    run.make_folder(f"experiments/{name}")
    write_experiment(run, f"experiments/{name}", experiment)


def test_results_are_read_back_the_oldest_first(tmp_path):
    later, earlier = Experiment(started_unix_s=2.0, rows=[ROW]), Experiment(started_unix_s=1.0)
    written(tmp_path, "a", later)
    written(tmp_path, "b", earlier)
    assert read_experiments(tmp_path) == [earlier, later]


def test_a_row_is_called_after_its_variants():
    assert ROW.label == "num_workers=4 + fused=True"
    assert AppliedVariant("fused", "").label == "fused"


def test_a_run_without_results_has_none(tmp_path):
    assert read_experiments(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"schema": "1"}', b"\xff", b"[" * 5000, b'{"schema": 3}'])
def test_another_file_is_refused_and_left_out(content, tmp_path):
    with pytest.raises(TraceFileError):
        decode_experiment(content)
    (tmp_path / "experiments" / "a").mkdir(parents=True)
    (tmp_path / "experiments" / "a" / "result.json").write_bytes(content)
    assert read_experiments(tmp_path) == []
