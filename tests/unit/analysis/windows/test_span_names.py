"""analysis/windows/span_names.py: names of phases, by the library that writes them."""

import polars as pl
import pytest

from kinetoscope.analysis.windows.span_names import FETCH, PATTERNS, PHASE_PATTERNS, WORKER_TRACK

NAMES = {
    "forward": [
        *("forward", "## Forward ##", "forward_pass", "forward-compute", "fwd"),
        *("[Strategy]DDPStrategy.training_step", "event/forward"),
    ],
    "backward": [
        *("Backward", "--- backward pass ---", "backward-compute", "bwd"),
        *("[Strategy]DDPStrategy.backward", "Accelerator.backward", "event/backward"),
    ],
    "optimizer": [
        *("optimizer", "opt_step", "Optimizer Step"),
        *("[LightningModule]Model.optimizer_step", "AcceleratedOptimizer.step"),
    ],
    "data": ["data", "load_data", "next batch", "[_TrainingEpochLoop].train_dataloader_next"],
}
OTHERS = ["forwarding", "my forward", "aten::_foreach_add_", "data_parallel", "Optimizer.zero_grad#Adam", "fwd/bwd"]


def contains(names, pattern):
    return pl.Series(names).str.contains(pattern).to_list()


@pytest.mark.parametrize("phase", NAMES)
def test_names_of_a_phase_are_of_this_phase_only(phase):
    for name in NAMES[phase]:
        found = [other for other, pattern in PHASE_PATTERNS.items() if contains([name], pattern)[0]]
        assert found == [phase], name


def test_other_names_are_of_no_phase():
    assert not any(any(contains(OTHERS, pattern)) for pattern in PHASE_PATTERNS.values())


def test_each_pattern_is_in_the_table_once():
    assert len({*PATTERNS}) == len(PATTERNS)


def test_fetches_and_workers_are_known_by_torchs_names():
    fetches = ["event/dataloader", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "event/dataloaders"]
    assert contains(fetches, FETCH) == [True, True, False]
    tracks = ["DataLoader worker 12", "DataLoader worker 0: train", "DataLoader workers"]
    assert pl.Series(tracks).str.extract(WORKER_TRACK).to_list() == ["12", "0", None]
