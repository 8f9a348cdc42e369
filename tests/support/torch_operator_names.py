"""Shared by tests of redaction: the names of operators and of backward nodes that the installed torch registers.

``python tests/support/torch_operator_names.py`` writes them into the file with which
`kinetoscope.formats.torch_names` recognises them; ``--print`` prints them.
"""

import re
import subprocess
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path

PATH = Path(__file__).parents[2] / "src" / "kinetoscope" / "formats" / "torch_names.txt"
_TESTED = ("_test", "_inductor_test", "debugprims")
_LAZY = (  # modules that register operators when they are imported
    *("torch._dynamo.variables.streams", "torch._dynamo._trace_wrapped_higher_order_op", "torch._prims.rng_prims"),
    *("torch._functorch._activation_offloading.offload_ops", "torch._functorch.predispatch"),
    *("torch._inductor.fx_passes.bucketing", "torch._inductor.inductor_prims", "torch._inductor.lowering"),
    *("torch.ao.quantization.fx._decomposed", "torch.backends._nnapi.prepare", "torch.export.custom_ops"),
    *("torch.distributed._functional_collectives", "torch.distributed._ops.device_mesh", "torch.distributed.fsdp"),
    *("torch.distributed._shard.sharded_tensor", "torch.distributed._symmetric_memory", "torch.distributed.pipelining"),
    *("torch.distributed._tools", "torch.distributed.tensor", "torch.distributed.tensor._collective_utils"),
    *("torch.distributed.tensor.experimental._context_parallel", "torch.nn.attention._fa3", "torch.nn.attention._fa4"),
    *("torch.nn.attention.flex_attention", "torch.nn.attention.varlen", "torch.nn.modules.linear_cross_entropy"),
    *("torch.onnx.ops", "torch.sparse.semi_structured", "torch._native.ops.norm.norms", "torch._vendor.quack.rmsnorm"),
)


def registered_names() -> list[str]:
    """Return the names of all operators, without overloads, and of the nodes of autograd, as a new process has them.

    This process may have operators of other tests.
    """
    command = [sys.executable, __file__, "--print"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def _names_here() -> list[str]:
    import torch

    for module in _LAZY:
        with suppress(ImportError), warnings.catch_warnings(action="ignore"):  # some need a GPU or another package
            import_module(module)
    operators = {name.partition(".")[0] for name in torch._C._dispatch_get_all_op_names()}
    headers = Path(torch.__file__).parent / "include" / "torch" / "csrc" / "autograd" / "generated" / "Functions.h"
    nodes = set(re.findall(r"struct TORCH_API (\w+Backward\d*)", headers.read_text(encoding="utf-8")))
    return sorted(name for name in operators | nodes if name.partition("::")[0] not in _TESTED)


if __name__ == "__main__":
    names = _names_here()
    if "--print" in sys.argv:
        print(*names, sep="\n")
    else:
        PATH.write_text("\n".join(names) + "\n", encoding="utf-8")
