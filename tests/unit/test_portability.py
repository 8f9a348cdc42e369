"""The C compiles for Linux and is linked for macOS and, without the recorder, Windows: it was never loaded there."""

import importlib.util
import os
import re
import struct
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "src" / "native"
LINUX = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
MACOS = {"x86_64-macos": 0x0100_0007, "aarch64-macos": 0x0100_000C}
WINDOWS = "x86_64-windows-gnu"
IN_TRAINING = {"recorder", "pulse", "condition.c", "os_posix.c"}
OF_LINUX, OF_OTHERS = {"os_linux.c", "pages_linux.c"}, {"os_posix.c", "pages_heap.c"}

# What <Python.h> needs to know of Windows: the headers of this Python describe the machine that it was built on.
WINDOWS_PYCONFIG = """
#define Py_PYCONFIG_H
#define MS_WINDOWS
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED
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
    pytest.mark.timeout(1800),  # zig builds each system's own libraries at first
    pytest.mark.skipif(
        importlib.util.find_spec("ziglang") is None,
        reason="needs compilers for other machines: make test-targets",
    ),
    pytest.mark.skipif(
        bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="the headers of a Python without the GIL refuse our C"
    ),
]


class Zig:
    """Compilers for all targets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {
            name: os.environ.get(name, str(folder / "cache"))
            for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
        }
        self._windows_pyconfig = folder / "windows_pyconfig.h"
        self._windows_pyconfig.write_text(WINDOWS_PYCONFIG)

    def __call__(self, *arguments: object) -> tuple[int, str]:
        """Run zig; its status, and what it prints."""
        command = [sys.executable, "-m", "ziglang", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environment)
        return done.returncode, done.stdout + done.stderr

    def compile_all(self, target: str, paths: list[Path], *macros: str) -> tuple[list[Path], str]:
        """Compile files without linking them; the objects, and what the compiler says of those that it refuses."""
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda path: self._compile(target, path, macros), paths))
        return [output for output, _ in done], "".join(problems for _, problems in done)

    def _compile(self, target: str, path: Path, macros: tuple[str, ...]) -> tuple[Path, str]:
        flags = ["-std=gnu11", "-O0", "-fno-sanitize=undefined", "-Werror=implicit-function-declaration"]
        flags += [f"-I{NATIVE}", f"-I{sysconfig.get_path('include')}", "-DPy_LIMITED_API=0x030B0000", *macros]
        flags += ["-include", str(self._windows_pyconfig)] if "windows" in target else []
        output = self.folder / target / f"{path.parent.name}_{path.stem}.o"
        output.parent.mkdir(parents=True, exist_ok=True)
        status, problems = self("cc", "-target", target, *flags, "-c", path, "-o", output)
        return output, "" if status == 0 and output.stat().st_size > 0 else f"{path}:\n{problems}"


@pytest.fixture(scope="module")
def zig(tmp_path_factory):
    return Zig(tmp_path_factory.mktemp("targets"))


def sources(without: set[str]) -> list[Path]:
    """Return the files of a system, ``without`` those of others."""
    return [path for path in sorted(NATIVE.glob("**/*.c")) if path.name not in without]


def without_recorder(zig: Zig, target: str) -> list[Path]:
    """Return the objects of what `setup.py` builds on Windows."""
    paths = [path for path in sources(OF_LINUX) if not {path.parent.name, path.name} & IN_TRAINING]
    assert len(paths) > 10
    objects, problems = zig.compile_all(target, paths, "-DKINETOSCOPE_WITHOUT_RECORDER")
    assert problems == ""
    return objects


@pytest.mark.parametrize("target", LINUX)
def test_all_of_the_c_compiles_where_people_train(zig, target):
    assert zig.compile_all(target, sources(OF_OTHERS))[1] == ""


@pytest.mark.parametrize("target", MACOS)
def test_all_of_the_c_is_linked_for_macos(zig, target):
    """Python's names are looked up when the module is loaded, as setuptools does it; all others are the system's."""
    module = zig.folder / target / "_native.abi3.so"
    flags = ["-shared", "-Wl,-undefined,dynamic_lookup"]
    objects, errors = zig.compile_all(target, sources(OF_LINUX))
    assert errors == ""
    assert zig("cc", "-target", target, *flags, *objects, "-o", module) == (0, "")
    processor, exported, missing = names_of_macho(module.read_bytes())
    assert processor == MACOS[target]
    assert "_PyInit__native" in exported
    assert not {name for name in missing if not name.startswith(("_Py", "__Py"))}


def names_of_macho(content: bytes) -> tuple[int, set[str], set[str]]:
    """Return the CPU type of a Mach-O file, its exported names, and those without a library."""
    magic, processor, _, _, num_commands = struct.unpack_from("<5I", content)
    assert magic == 0xFEEDFACF
    exported, missing, place = set(), set(), 32
    for _ in range(num_commands):
        command, num_bytes = struct.unpack_from("<II", content, place)
        if command == 2:  # LC_SYMTAB
            symbols, count, texts, _ = struct.unpack_from("<4I", content, place + 8)
            for number in range(count):
                text, kind, _, about, _ = struct.unpack_from("<IBBHQ", content, symbols + 16 * number)
                name = content[texts + text : content.index(b"\0", texts + text)].decode()
                if kind & 0x0F == 0x0F:
                    exported.add(name)
                elif kind & 0x0F == 0x01 and about >> 8 == 0:  # the library's number
                    missing.add(name)
        place += num_bytes
    return processor, exported, missing


def test_file_access_code_links_for_windows(zig):
    """Link against an import library of all undefined symbols, which must all be Python's."""
    folder = zig.folder / WINDOWS
    objects = without_recorder(zig, WINDOWS)
    link = ["cc", "-target", WINDOWS, "-shared", *objects, "-o", folder / "_native.pyd"]
    status, problems = zig(*link)
    missing = set(re.findall(r"undefined symbol: (?:__declspec\(dllimport\) )?(\w+)", problems))
    assert status != 0
    assert "PyModule_Create2" in missing
    assert not {name for name in missing if not name.startswith(("Py", "_Py"))}
    data = {name for name in missing if name.startswith("PyExc_") or name.endswith(("_Type", "Struct"))}
    lines = [f"{name} DATA" if name in data else name for name in sorted(missing)]
    (folder / "python3.def").write_text("\n".join(['LIBRARY "python3.dll"', "EXPORTS", *lines, ""]))
    library = folder / "libpython3.a"
    assert zig("dlltool", "-m", "i386:x86-64", "-d", folder / "python3.def", "-l", library) == (0, "")
    assert zig(*link, library) == (0, "")
    assert (folder / "_native.pyd").read_bytes()[:2] == b"MZ"


def test_a_function_that_a_machine_does_not_have_is_found(zig, tmp_path):
    """macOS has no mremap. Without this, the tests above could pass because the compiler said nothing."""
    source = tmp_path / "moves.c"
    source.write_text("#include <sys/mman.h>\nvoid *moved(void *pages) { return mremap(pages, 1, 2, 0); }\n")
    assert "call to undeclared function 'mremap'" in zig.compile_all("aarch64-macos", [source])[1]
