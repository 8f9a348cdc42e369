"""report/module_tree.py: modules as a tree, in which repeated blocks are one node."""

from kinetoscope.analysis.modules.module_rows import ModuleRow
from kinetoscope.report.module_tree import build_module_tree, module_time_ns

MS = 1_000_000


def row(name, forward_ms, class_name="Block", **values):
    fields = dict.fromkeys(ModuleRow.__dataclass_fields__) | {"rank": 0, "name": name, "class_name": class_name}
    fields |= {"depth": name.count("."), "num_calls": 1, "cpu_forward_ns": forward_ms * MS, "cpu_backward_ns": 0}
    return ModuleRow(**fields | values)


def labels(nodes):
    return [node.label for node in nodes]


def test_modules_are_below_the_nearest_module_that_was_called():
    (model,) = build_module_tree(
        [row("Model", 3, "Model"), row("Model.layers.0", 2), row("Model.head", 1, "Linear")], "cpu"
    )
    assert model.label == "Model"
    assert labels(model.children) == ["layers.0", "head"]


def test_modules_with_most_time_come_first():
    nodes = build_module_tree([row("Small", 1), row("Large", 5), row("(outside of modules)", 3, None)], "cpu")
    assert labels(nodes) == ["Large", "(outside of modules)", "Small"]


def test_the_gpu_time_sorts_where_the_gpu_limits_the_step():
    rows = [row("A", 5, device_forward_ns=1 * MS), row("B", 1, device_forward_ns=9 * MS)]
    assert labels(build_module_tree(rows, "device")) == ["B", "A"]
    assert labels(build_module_tree(rows, "cpu")) == ["A", "B"]


def test_repeated_blocks_are_one_node_with_the_sums_of_all():
    blocks = [row(f"Model.layers.{number}", 2) for number in range(12)]
    parts = [row(f"Model.layers.{number}.mlp", 1, "MLP") for number in range(12)]
    (model,) = build_module_tree([row("Model", 30, "Model"), *blocks, *parts], "cpu")
    (layers,) = model.children
    assert layers.label == "layers.0-11"
    assert len(layers.names) == 12
    assert layers.amounts["cpu_forward_ns"] == 24 * MS
    assert layers.outlier is None
    (mlp,) = layers.children
    assert (mlp.label, mlp.amounts["cpu_forward_ns"]) == ("mlp", 12 * MS)


def test_blocks_of_different_ranks_are_not_one_node():
    blocks = [row(f"Model.layers.{number}", 2, rank=number // 4) for number in range(8)]
    (model,) = build_module_tree([row("Model", 8, "Model"), row("Model", 8, "Model", rank=1), *blocks], "cpu")
    assert model.ranks == (0, 1)
    assert {node.label: node.ranks for node in model.children} == {"layers.0-3": (0,), "layers.4-7": (1,)}


def test_the_only_block_that_differs_by_more_than_a_fifth_is_named():
    times = [10, 10, 13, 10]
    rows = [row("Model", 50, "Model"), *(row(f"Model.layers.{number}", time) for number, time in enumerate(times))]
    (layers,) = build_module_tree(rows, "cpu")[0].children
    assert layers.outlier == ("Model.layers.2", 1.3)


def test_a_block_within_a_fifth_of_the_others_is_no_outlier():
    rows = [
        row("Model", 50, "Model"),
        *(row(f"Model.layers.{number}", time) for number, time in enumerate([10, 11, 10])),
    ]
    assert build_module_tree(rows, "cpu")[0].children[0].outlier is None


def test_few_blocks_with_unequal_times_are_listed_one_by_one():
    rows = [row("Model", 50, "Model"), row("Model.0", 10, "Linear"), row("Model.1", 30, "Linear")]
    assert labels(build_module_tree(rows, "cpu")[0].children) == ["1", "0"]


def test_modules_of_other_classes_are_no_blocks_of_one_kind():
    rows = [
        row("Model", 9, "Model"),
        row("Model.0", 3, "Linear"),
        row("Model.1", 3, "ReLU"),
        row("Model.2", 3, "Linear"),
    ]
    assert labels(build_module_tree(rows, "cpu")[0].children) == ["0,2", "1"]


def test_rows_of_several_ranks_are_added():
    rows = [row("Model", 3), row("Model", 5, rank=1)]
    assert build_module_tree(rows, "cpu")[0].amounts["cpu_forward_ns"] == 8 * MS


def test_what_was_not_recorded_is_unknown():
    assert build_module_tree([row("Model", 3)], "cpu")[0].amounts["device_forward_ns"] is None


def test_only_a_node_for_several_blocks_has_their_number_in_its_title():
    rows = [
        row("Model", 9, "Model"),
        row("Model.block-1", 3, "Linear"),
        *(row(f"Model.layers.{number}", 2) for number in (0, 1)),
        *(row(f"Model.layers.{number}.a,b", 1, "Linear") for number in (0, 1)),
    ]
    layers, single = build_module_tree(rows, "cpu")[0].children
    assert (layers.title, single.title) == ("layers.0,1 (2x)", "block-1")
    assert layers.children[0].title == "a,b"


def test_recomputation_counts_on_the_side_that_its_column_is_of():
    on_device = {"device_forward_ns": 2 * MS, "device_backward_ns": 4 * MS, "recompute_ns": 1 * MS}
    sides = [("cpu", {"recompute_ns": 1 * MS}, 4), ("cpu", on_device, 3), ("device", on_device, 7)]
    for side, values, time_ms in sides:
        (model,) = build_module_tree([row("Model", 3, **values)], side)
        assert module_time_ns(model.amounts, side) == time_ms * MS
