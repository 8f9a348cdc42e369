"""Shared by tests of redaction: the names of operators and of backward nodes that the installed torch registers.

``python tests/torch_names.py`` writes them into the file with which `kinetoscope.formats.torch_names` recognises them.
"""

import re
from pathlib import Path

PATH = Path(__file__).parents[1] / "src" / "kinetoscope" / "formats" / "torch_names.txt"
TESTED = ("_test", "_inductor_test", "debugprims")


def registered_names() -> list[str]:
    """Return the names of all operators, without their overloads, and those of the nodes of torch's autograd.

    Some are registered when a part of torch is imported.
    """
    import torch
    import torch._inductor.lowering
    import torch.distributed.fsdp
    import torch.nn.attention.flex_attention

    operators = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    headers = Path(torch.__file__).parent / "include" / "torch" / "csrc" / "autograd" / "generated" / "Functions.h"
    nodes = set(re.findall(r"struct TORCH_API (\w+Backward\d*)", headers.read_text(encoding="utf-8")))
    return sorted(name for name in operators | nodes if name.partition("::")[0] not in TESTED)


if __name__ == "__main__":
    PATH.write_text("\n".join(registered_names()) + "\n", encoding="utf-8")
