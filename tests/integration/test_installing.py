"""Installed files where the native extension can be built, and where it cannot."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the C is built on Linux only"),
    pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="the C is not built without the GIL"),
]

QUICK_COMPILER = """#!/bin/sh
exec gcc "$@" -O0
"""
# A compiler that compiles nothing, and refuses the flags that Clang or another processor's GCC refuses.
COMPILER_WITHOUT_TLS_DIALECTS = """#!/bin/sh
for argument; do
    case "$argument" in -mtls-dialect=*) echo "error: unsupported option '$argument'" >&2; exit 1;; esac
    if [ "$before" = -o ]; then echo > "$argument"; fi
    before=$argument
done
"""


@pytest.fixture
def source(tmp_path):
    return copy_source(tmp_path / "source")


def copy_source(source):
    """Return the source tree of a wheel, without files that were built here."""
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return source


def write_compiler(folder, script):
    compiler = folder / "compiler"
    compiler.write_text(script)
    compiler.chmod(0o755)
    return compiler


# The call of the backend alone: pip itself, and its query of the metadata, take twice as long.
BUILD = """
import sys
from setuptools import build_meta
build_meta.build_wheel(sys.argv[1])
"""
PIP = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", ".", "--wheel-dir"]


def build(source, compiler, by=("-c", BUILD), **settings):
    """Build a source tree; return the folder of wheels, and what the build printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KINETOSCOPE_")} | settings
    environment |= {"CC": str(compiler), "CXX": str(compiler)}
    wheels = source.parent / "wheels"
    wheels.mkdir()
    done = subprocess.run(
        [sys.executable, *by, wheels], cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    return wheels, done


def build_wheel(source, compiler, **settings):
    """Return the wheel of a source tree."""
    wheels, done = build(source, compiler, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = wheels.iterdir()
    return wheel


def modules_in(wheel):
    with zipfile.ZipFile(wheel) as files:
        return {Path(name).name.partition(".")[0] for name in files.namelist() if name.endswith(".so")}


def test_without_a_compiler_nothing_is_installed_and_the_remedy_is_named(source):
    wheels, done = build(source, "false", by=PIP)
    assert done.returncode != 0
    assert "Without them, install a wheel: docs/install.md." in done.stdout + done.stderr
    assert not [*wheels.iterdir()]


def installed_command(tmp_path, *arguments):
    """Return the output of the command where a wheel is installed, without the source tree."""
    return installed_python(tmp_path, "-m", "kinetoscope", *arguments)


def installed_python(tmp_path, *arguments):
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_module_that_was_built_before_does_not_stay_when_it_cannot_be_built_again(source):
    built = source / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}" / "kinetoscope"
    built.mkdir(parents=True)
    module = built / "_native.abi3.so"
    module.write_bytes(b"of another Python")
    os.utime(module, (0, 0))
    _, done = build(source, "false")
    assert done.returncode != 0
    assert not module.exists()


def test_compiler_without_the_thread_local_storage_flag_builds_the_extension(source, tmp_path):
    wheel = build_wheel(source, write_compiler(tmp_path, COMPILER_WITHOUT_TLS_DIALECTS))
    assert "-cp311-abi3-" in wheel.name
    assert modules_in(wheel) == {"_native", "_kineto_save"}


TRAINING = """
import kinetoscope
with kinetoscope.profile("run", torch=False, slow_steps=True, hangs=True) as profiler:
    for _ in profiler.batches(range(20)):
        with profiler.marker("forward"):
            pass
print("trained")
"""
TRACE = """{"baseTimeNanoseconds": 1790857026000000000, "traceEvents": [
    {"ph": "X", "name": "forward", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
]}"""


def test_without_the_recorder_training_continues_and_files_are_read_and_merged(source, tmp_path):
    """The parts that are built on Windows, built here."""
    wheel = build_wheel(source, write_compiler(tmp_path, QUICK_COMPILER), KINETOSCOPE_WITHOUT_RECORDER="1")
    assert "-cp311-abi3-" in wheel.name
    assert modules_in(wheel) == {"_native"}
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "installed")
    assert len(list((tmp_path / "installed").iterdir())) == 2, "the package, and its metadata"
    assert installed_command(tmp_path, "--version").endswith(" (native, without the recorder)\n")
    assert "the others wait for them" in installed_command(tmp_path, "explain", "straggler")

    assert installed_python(tmp_path, "-c", TRAINING) == "trained\n"
    assert not (tmp_path / "run").exists()
    (tmp_path / "rank0.json").write_text(TRACE)
    assert "no faults" in installed_command(tmp_path, "check", "rank0.json")
    assert "Merged 1 file of 1 rank" in installed_command(tmp_path, "merge", "-o", "merged.json", "rank0.json")
    assert "1" in installed_command(tmp_path, "info", "merged.json")
