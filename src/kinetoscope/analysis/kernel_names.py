"""analysis: the names of kernels as compilers write them."""

import re

_NO_NAME = re.compile(r"\(anonymous namespace\)|<unnamed>|\{anonymous\}")
_ARGUMENTS = re.compile("[<(]")


def own_name(kernel: str) -> str:
    """The name of a kernel with its namespaces, without its arguments and those of its template."""
    return _ARGUMENTS.split(_NO_NAME.sub("", kernel), maxsplit=1)[0]
