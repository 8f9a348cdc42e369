"""The C compiles for all machines on which people look at traces, and the recorder for those on which they train."""

import importlib.util
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "src" / "native"
LINUX = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
ELSEWHERE = ["x86_64-macos", "aarch64-macos", "x86_64-windows-gnu"]
IN_TRAINING = ("recorder", "pulse")

# What <Python.h> needs to know of Windows: the headers of this Python describe the machine that it was built on.
WINDOWS_PYCONFIG = """
#define Py_PYCONFIG_H
#define MS_WINDOWS
#define HAVE_DECLSPEC_DLL
#define HAVE_PY_SSIZE_T
typedef long long Py_ssize_t;
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_WCHAR_T 2
"""

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ziglang") is None,
        reason="needs compilers for other machines: make test-targets",
    ),
    pytest.mark.skipif(
        bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="the headers of a Python without the GIL refuse our C"
    ),
]


@pytest.fixture(scope="module")
def compile_for(tmp_path_factory):
    """Compiles files for a target without linking them; returns the compiler's errors for each file."""
    folder = tmp_path_factory.mktemp("targets")
    windows_pyconfig = folder / "windows_pyconfig.h"
    windows_pyconfig.write_text(WINDOWS_PYCONFIG)
    environment = {name: str(folder / "cache") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}

    def compile_file(target, path):
        flags = ["-std=gnu11", "-O0", "-fno-sanitize=undefined", "-Werror=implicit-function-declaration"]
        flags += [f"-I{NATIVE}", f"-I{sysconfig.get_path('include')}", "-DPy_LIMITED_API=0x030B0000"]
        flags += ["-include", str(windows_pyconfig)] if "windows" in target else []
        output = folder / target / f"{path.parent.name}_{path.stem}.o"
        output.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "ziglang", "cc", "-target", target, *flags, "-c", path, "-o", output]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        return "" if done.returncode == 0 and output.stat().st_size > 0 else f"{path}:\n{done.stdout}{done.stderr}"

    def compile_all(target, paths):
        with ThreadPoolExecutor(2) as pool:
            return "".join(pool.map(lambda path: compile_file(target, path), paths))

    return compile_all


@pytest.mark.parametrize("target", LINUX)
def test_all_of_the_c_compiles_where_people_train(compile_for, target):
    assert compile_for(target, sorted(NATIVE.glob("**/*.c"))) == ""


@pytest.mark.parametrize("target", ELSEWHERE)
def test_all_of_the_c_but_what_runs_in_training_compiles_where_people_look_at_traces(compile_for, target):
    others = [path for path in sorted(NATIVE.glob("**/*.c")) if path.parent.name not in IN_TRAINING]
    paths = [path for path in others if path.stem != "module"]
    assert len(paths) > 10
    assert compile_for(target, paths) == ""


def test_a_function_that_a_machine_does_not_have_is_found(compile_for, tmp_path):
    """macOS has no mremap. Without this, the tests above could pass because the compiler said nothing."""
    source = tmp_path / "moves.c"
    source.write_text("#include <sys/mman.h>\nvoid *moved(void *pages) { return mremap(pages, 1, 2, 0); }\n")
    assert "call to undeclared function 'mremap'" in compile_for("aarch64-macos", [source])
