"""Builds kinetoscope._native, in C, and kinetoscope._kineto_save, Kineto's save without the GIL, in C++.

The first is required: without a compiler the build fails, and a wheel is the way to install. Without the second, torch
saves its traces itself. On macOS and Windows only the first is built; on Windows without the recorder and the pulse,
which need POSIX. A Python without the GIL gets neither: training goes unrecorded there.

On Linux, `KINETOSCOPE_PORTABLE=1` builds what macOS gets, and `KINETOSCOPE_WITHOUT_RECORDER=1` what Windows gets;
`KINETOSCOPE_SANITIZE=1` builds both for the tests under AddressSanitizer and UndefinedBehaviorSanitizer.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError


def _is_set(name: str) -> bool:
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")


IS_SANITIZED = os.environ.get("KINETOSCOPE_SANITIZE") == "1"
# There is no limited API without the GIL, and the C code relies on the GIL.
HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
HAS_RECORDER = sys.platform != "win32" and not _is_set("KINETOSCOPE_WITHOUT_RECORDER")
IS_PORTABLE = sys.platform != "linux" or _is_set("KINETOSCOPE_PORTABLE")
POSIX_ONLY = ("recorder", "pulse", "condition.c", "os_linux.c", "os_posix.c")
"""Folders and files that Windows does not get."""

OTHER_SYSTEM_FILES = {
    "os_linux.c" if IS_PORTABLE else "os_posix.c",
    "pages_linux.c" if IS_PORTABLE or IS_SANITIZED else "pages_heap.c",
}

# Thread-local storage in a loaded library is faster by descriptor, which GCC for x86-64 does not use by default.
TLS_FLAG = "-mtls-dialect=gnu2"
WARNINGS = ["-Wall", "-Wextra", "-Wno-cast-function-type", "-fvisibility=hidden"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g"]
MISSING_COMPILER_MESSAGE = """
Kinetoscope's native extension could not be built: see the compiler's messages above. It needs GCC or Clang and Python's
headers (Debian: apt install gcc g++ python3-dev). Without them, install a wheel: docs/install.md.
"""
ROOT = Path(__file__).parent
SOURCES = ROOT / "src" / "native"


def extensions() -> list[Extension]:
    """Return the modules for CPython 3.11 and every later version."""
    c_files = sorted(path for path in SOURCES.glob("**/*.c") if path.name not in OTHER_SYSTEM_FILES)
    c_flags = ["-std=gnu11", *WARNINGS]
    if not HAS_RECORDER:
        files = [path for path in c_files if not {path.parent.name, path.name} & {*POSIX_ONLY}]
        return [_make_extension("_native", files, c_flags, macros=[("KINETOSCOPE_WITHOUT_RECORDER", "1")])]
    native = _make_extension("_native", c_files, c_flags)
    if sys.platform != "linux":
        return [native]
    save = [SOURCES / "kineto" / "kineto_save.cpp"]
    return [native, _make_extension("_kineto_save", save, ["-std=c++17", *WARNINGS], language="c++")]


def _make_extension(
    name: str, files: list[Path], flags: list[str], language: str = "c", macros: Sequence[tuple[str, str]] = ()
) -> Extension:
    return Extension(
        f"kinetoscope.{name}",
        sources=[str(path.relative_to(ROOT)) for path in files],
        depends=sorted(str(path.relative_to(ROOT)) for path in SOURCES.glob("**/*.h")),
        include_dirs=[str(SOURCES.relative_to(ROOT))],
        define_macros=[("Py_LIMITED_API", "0x030B0000"), *macros],
        py_limited_api=True,
        optional=name == "_kineto_save",
        language=language,
        extra_compile_args=[*flags, *(["-O1", *SANITIZERS] if IS_SANITIZED else ["-O2"])],
        extra_link_args=SANITIZERS if IS_SANITIZED else [],
    )


class BuildExtensions(build_ext):
    """Builds with the flags that the compiler takes; what cannot be built is not left from another time either."""

    def build_extensions(self) -> None:
        if self._accepts(TLS_FLAG):
            for extension in self.extensions:
                if extension.language == "c":
                    extension.extra_compile_args.append(TLS_FLAG)
        super().build_extensions()

    def get_ext_filename(self, fullname: str) -> str:
        """Return the name that every CPython since 3.11 finds: 3.15 adds the platform to it, which others do not."""
        return re.sub(r"\.abi3-[^.]+\.so$", ".abi3.so", super().get_ext_filename(fullname))

    def build_extension(self, ext: Extension) -> None:
        try:
            if self.compiler.compiler_type == "msvc":
                raise CompileError("The C needs GCC or Clang. On Windows: python setup.py build --compiler=mingw32")
            super().build_extension(ext)
        except Exception:
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            if not ext.optional:
                print(MISSING_COMPILER_MESSAGE, file=sys.stderr, flush=True)
            raise

    def _accepts(self, flag: str) -> bool:
        with TemporaryDirectory() as folder:
            source = Path(folder, "tried.c")
            source.write_text("__thread int number;\nint *place(void) { return &number; }\n")
            try:
                self.compiler.compile([str(source)], output_dir=folder, extra_postargs=["-Werror", flag])
            except CompileError:
                return False
        return True


class BuildWheel(bdist_wheel):
    """Names the wheel after the system and the Python that built it, also where it has no extension."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False


setup(
    ext_modules=extensions() if HAS_GIL else [],
    cmdclass={"build_ext": BuildExtensions, "bdist_wheel": BuildWheel},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if HAS_GIL else {},
)
