"""Communication without the traces of other ranks: the part of waiting is unknown."""

import json

import pytest

import kinetoscope
from trainsim import Fault, Settings, simulate
from trainsim.analyses import analyze_cached

SLOW = Fault(kind="slow_network", cost_ns=900_000)


def communication(**settings):
    _, report = analyze_cached(Settings(num_ranks=4, num_steps=10, faults=(SLOW,), **settings))
    return next(found for found in report.findings if found.kind == "exposed_communication")


def test_traces_of_all_ranks_split_communication_into_waiting_and_transfer():
    found = communication()
    assert found.title.endswith("ms/step not overlapped with compute")
    assert dict(found.evidence)["unknown_share"] == 0
    assert "is unknown" not in found.advice


@pytest.mark.parametrize("layout", ["data", "tensor"])
def test_single_rank_has_an_unknown_transfer_share(layout):
    found = communication(missing_ranks=(1, 2, 3), layout=layout)
    assert "ms/step with ranks 1-3 (not recorded)" in found.title
    assert len(found.title) <= 80
    assert found.confidence != "high"
    assert dict(found.evidence)["unknown_share"] == 1
    assert "The recorded ranks wait for ranks 1-3, or transfer data meanwhile" in found.advice


@pytest.mark.parametrize("named", ["small", "some of unknown size", "large"])
def test_smaller_buckets_are_not_advised_where_a_step_transfers_little(tmp_path, named):
    for path in simulate(Settings(num_ranks=2, num_steps=10, faults=(SLOW,))).write(tmp_path):
        trace = json.loads(path.read_text())
        calls = [event["args"] for event in trace["traceEvents"] if "In msg nelems" in (event.get("args") or {})]
        for args in calls if named != "large" else ():
            args |= {"In msg nelems": 1_000, "Out msg nelems": 1_000}
        for args in calls[len(calls) // 2 :] if named == "some of unknown size" else ():
            del args["In msg nelems"], args["Out msg nelems"]
        path.write_text(json.dumps(trace))
    report = kinetoscope.analyze(tmp_path, cache=False)
    found = next(found for found in report.findings if found.kind == "exposed_communication")
    assert ("smaller buckets do not help" in found.advice) == (named == "small")
    assert ("bucket_cap_mb" in found.advice) == (named != "small")
