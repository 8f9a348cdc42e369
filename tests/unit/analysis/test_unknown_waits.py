"""What is said of communication without the traces of other ranks: how much of it is waiting, nobody knows."""

import pytest

from simulated_training import Fault, Settings
from simulated_training.analysed import analysed

SLOW = Fault(kind="slow_network", cost_ns=900_000)


def communication(**settings):
    _, report = analysed(Settings(num_ranks=4, num_steps=10, faults=(SLOW,), **settings))
    return next(found for found in report.findings if found.kind == "exposed_communication")


def test_with_the_traces_of_all_ranks_communication_is_shared_out_to_waiting_and_transfer():
    found = communication()
    assert found.title == "Ranks transfer data while nothing is computed"
    assert dict(found.evidence)["share_not_known"] == 0
    assert "not known" not in found.advice


@pytest.mark.parametrize("layout", ["data", "tensor"])
def test_of_one_rank_alone_nobody_says_how_much_was_transfer(layout):
    found = communication(missing_ranks=(1, 2, 3), layout=layout)
    assert found.title == "Ranks communicate while nothing is computed"
    assert found.confidence != "high"
    assert dict(found.evidence)["share_not_known"] == 1
    assert found.advice.startswith("For 100 % of this time it is not known how much is waiting for late ranks")
