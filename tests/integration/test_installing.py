"""What is installed where the C can be built, and where it cannot."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]

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
    """The source tree of a wheel, without files that were built here."""
    shutil.copytree(HOUSE / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(HOUSE / name, source)
    return source


def write_compiler(folder, script):
    compiler = folder / "compiler"
    compiler.write_text(script)
    compiler.chmod(0o755)
    return compiler


# What pip has the backend do; pip itself, and asking for the metadata before, take twice as long.
BUILD = """
import sys
from setuptools import build_meta
build_meta.build_wheel(sys.argv[1])
"""
PIP = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", ".", "--wheel-dir"]


def build_wheel(source, compiler, by=("-c", BUILD), **settings):
    """The wheel of a source tree."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KINETOSCOPE_")} | settings
    environment |= {"CC": str(compiler), "CXX": str(compiler)}
    wheels = source.parent / "wheels"
    wheels.mkdir()
    done = subprocess.run(
        [sys.executable, *by, wheels], cwd=source, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = wheels.iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel_without_c(tmp_path_factory):
    return build_wheel(copy_source(tmp_path_factory.mktemp("without-c") / "source"), "false", by=PIP)


def modules_in(wheel):
    with zipfile.ZipFile(wheel) as files:
        return {Path(name).name.partition(".")[0] for name in files.namelist() if name.endswith(".so")}


def test_without_a_compiler_the_wheel_is_one_for_every_machine_and_says_that_it_has_no_c(wheel_without_c, tmp_path):
    assert wheel_without_c.name.endswith("-py3-none-any.whl")
    assert modules_in(wheel_without_c) == set()

    with zipfile.ZipFile(wheel_without_c) as files:
        files.extractall(tmp_path / "installed")
    assert (tmp_path / "installed" / "kinetoscope" / "__init__.py").is_file()
    assert len(list((tmp_path / "installed").iterdir())) == 2, "the package, and its metadata"
    version = installed_command(tmp_path, "--version")
    assert "pure Python: this installation has no module in C; install the sdist or the repository with" in version


def installed_command(tmp_path, *arguments):
    """What the command prints where a wheel is installed, without the source tree."""
    return installed_python(tmp_path, "-m", "kinetoscope", *arguments)


def installed_python(tmp_path, *arguments):
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "KINETOSCOPE_PURE": ""},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_explanations_of_findings_come_with_the_wheel(wheel_without_c, tmp_path):
    with zipfile.ZipFile(wheel_without_c) as files:
        files.extractall(tmp_path / "installed")
    assert "the others wait for them" in installed_command(tmp_path, "explain", "straggler")


def test_a_module_that_was_built_before_does_not_stay_when_it_cannot_be_built_again(source):
    built = source / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}" / "kinetoscope"
    built.mkdir(parents=True)
    module = built / "_native.abi3.so"
    module.write_bytes(b"of another Python")
    os.utime(module, (0, 0))
    wheel = build_wheel(source, "false")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert modules_in(wheel) == set()


def test_a_compiler_that_does_not_know_the_flag_for_thread_local_storage_builds_the_c_without_it(source, tmp_path):
    wheel = build_wheel(source, write_compiler(tmp_path, COMPILER_WITHOUT_TLS_DIALECTS))
    assert "-cp311-abi3-" in wheel.name
    assert modules_in(wheel) == {"_native", "_kineto_save"}


# Both say who does the work.
TRAINING = """
import kinetoscope
from kinetoscope.recording.recorder_choice import ProcessRecorder
with kinetoscope.profile("run", torch=False, slow_steps=True, hangs=True, quiet=True) as profiler:
    for _ in profiler.batches(range(20)):
        with profiler.marker("forward"):
            writer = type(profiler.run.pulse.writer)
print(ProcessRecorder.__name__, writer.__module__)
"""
FILES = """
from kinetoscope.formats.chrome_scan import new_scanner
from kinetoscope.merge.input_file import Questions
from kinetoscope.merge.merge_traces import make_rewriter
print(type(new_scanner()).__name__, type(make_rewriter(Questions())).__name__)
"""


def test_without_the_recorder_in_c_python_records_and_c_reads_and_merges(source, tmp_path):
    """The parts that are built on macOS and Windows, built here."""
    settings = {"KINETOSCOPE_WITHOUT_RECORDER": "1", "KINETOSCOPE_REQUIRE_NATIVE": "1"}
    wheel = build_wheel(source, write_compiler(tmp_path, QUICK_COMPILER), **settings)
    assert "-cp311-abi3-" in wheel.name
    assert modules_in(wheel) == {"_native"}
    with zipfile.ZipFile(wheel) as files:
        files.extractall(tmp_path / "installed")
    version = installed_command(tmp_path, "--version")
    assert version.endswith(" (native, with the pure Python recorder: the one in C was left out when this was built)\n")

    assert installed_python(tmp_path, "-c", TRAINING) == "PureRecorder kinetoscope.pulse.pure_writer\n"
    assert installed_python(tmp_path, "-c", FILES) == "NativeScanner NativeRewriter\n"
    assert "nothing wrong" in installed_command(tmp_path, "check", "run/traces")
    assert "Merged 1 file of 1 rank" in installed_command(tmp_path, "merge", "-o", "merged.json", "run/traces")
    assert "forward" in installed_command(tmp_path, "summary", "run")
    assert "finished: 1 rank, step 19" in installed_command(tmp_path, "status", "run")
