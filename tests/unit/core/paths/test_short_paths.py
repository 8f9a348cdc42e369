"""Paths in texts: what is left of them is below a library or the project, and no home."""

import pytest

from kinetoscope.core.paths.short_paths import base_name, project_folder, shorten_paths


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("/home/alice/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py", "torch/nn/modules/linear.py"),
        ("/usr/lib/python3/dist-packages/numpy/core.py(3): dot", "numpy/core.py(3): dot"),
        ("/usr/lib/python3.12/threading.py(1012): _bootstrap", "threading.py(1012): _bootstrap"),
        ("/opt/python/lib/python3.13t/json/decoder.py", "json/decoder.py"),
        ("/home/alice/digits/model/layers.py(12): forward", "model/layers.py(12): forward"),
        ("/home/alice smith/digits 2/train.py(12): main", "train.py(12): main"),
        ("/gpfs/u/alice/other.py", "other.py"),
        ("/cluster/alice/other.py(3): f;/cluster/alice/b/c.py(4): g", "other.py(3): f;c.py(4): g"),
        ("loading /data/alice/x.bin from /mnt/alice/shards", "loading x.bin from shards"),
        (r"C:\Users\alice\digits\train.py(3): main", "train.py(3): main"),
        ("../../home/alice/x.py(2): g", "x.py(2): g"),
        ("~alice/digits/x.py", "x.py"),
        ("../../..", "../../.."),
        ("saved to /home/alice", "saved to ~"),
        ("aten::div", "aten::div"),
        ("event/batch", "event/batch"),
        ("/model/layer 1/attention", "/model/layer 1/attention"),
        ("tokens/s and/or 1/2", "tokens/s and/or 1/2"),
        ("s3://bucket/alice/x.json", "s3://bucket/alice/x.json"),
        ("torch/nn/modules/module.py(1773): _call_impl", "torch/nn/modules/module.py(1773): _call_impl"),
    ],
)
def test_a_path_is_shortened_to_its_library_or_the_project(text, short):
    assert shorten_paths(text, "/home/alice/digits") == short


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/alice/runs/rank0.json", "rank0.json"),
        ("runs/digits/", "digits"),
        (r"C:\Users\alice\rank0.json", "rank0.json"),
        ("s3://bucket/alice/rank0.json?key=secret", "rank0.json"),
        ("/home/alice", ""),
        ("", ""),
        ("/", ""),
    ],
)
def test_the_name_of_a_file_has_nothing_of_its_folders_and_no_key(path, name):
    assert base_name(path) == name


def test_the_project_is_the_folder_of_all_sources_that_are_in_no_library():
    frames = [
        "/home/alice/digits/train.py(3): main",
        "/home/alice/digits/model/layers.py(12): forward",
        "/home/alice/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py(9): forward",
        "aten::linear",
    ]
    assert project_folder(frames) == "/home/alice/digits"
    assert project_folder(["/home/alice/a.py(1): f", "/home/bob/b.py(1): g"]) == ""
    assert project_folder(["/home/alice/a.py(1): f", "/opt/b/b.py(1): g"]) == ""
    assert project_folder(["aten::linear"]) == ""
