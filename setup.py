"""Builds kinetoscope._native, the recorder in C, and kinetoscope._kineto_save, Kineto's save without the GIL, in C++.

Where the first cannot be built, the recorder in Python serves; where the second cannot, torch's own save.

`KINETOSCOPE_REQUIRE_NATIVE=1` makes a failed build an error; `KINETOSCOPE_SANITIZE=1` builds it for the tests under
AddressSanitizer and UndefinedBehaviorSanitizer (`make test-sanitized`).
"""

import os
import platform
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

IS_REQUIRED = os.environ.get("KINETOSCOPE_REQUIRE_NATIVE") == "1"
IS_SANITIZED = os.environ.get("KINETOSCOPE_SANITIZE") == "1"
# There is no limited API without the GIL, and the C code relies on the GIL.
IS_SUPPORTED = sys.platform == "linux" and not sysconfig.get_config_var("Py_GIL_DISABLED")

# Thread-local storage in a loaded library is quicker by descriptor; elsewhere than on x86-64 that is the default.
TLS = ["-mtls-dialect=gnu2"] if platform.machine() == "x86_64" else []
WARNINGS = ["-Wall", "-Wextra", "-Wno-cast-function-type", "-fvisibility=hidden"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g"]
HERE = Path(__file__).parent


def extensions() -> list[Extension]:
    """Modules for CPython 3.11 and every later one."""
    return [
        _extension("_native", "**/*.c", ["-std=gnu11", *WARNINGS, *TLS]),
        _extension("_kineto_save", "kineto/kineto_save.cpp", ["-std=c++17", *WARNINGS], language="c++"),
    ]


def _extension(name: str, pattern: str, flags: list[str], language: str = "c") -> Extension:
    sources = HERE / "src" / "native"
    return Extension(
        f"kinetoscope.{name}",
        sources=sorted(str(it.relative_to(HERE)) for it in sources.glob(pattern)),
        depends=sorted(str(it.relative_to(HERE)) for it in sources.glob("**/*.h")),
        include_dirs=[str(sources.relative_to(HERE))],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
        optional=not IS_REQUIRED,
        language=language,
        extra_compile_args=[*flags, *(["-O1", *SANITIZERS] if IS_SANITIZED else ["-O2"])],
        extra_link_args=SANITIZERS if IS_SANITIZED else [],
    )


if IS_REQUIRED and not IS_SUPPORTED:
    sys.exit("KINETOSCOPE_REQUIRE_NATIVE=1, but the native recorder needs Linux and a Python with the GIL.")

setup(
    ext_modules=extensions() if IS_SUPPORTED else [],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if IS_SUPPORTED else {},
)
