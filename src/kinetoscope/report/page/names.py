"""report: which names in a page the user chose, and what is written instead of them with ``--redact``."""

import re

_NAMESPACES = (
    "aten|prim|prims|c10|c10d|_c10d_functional|c10d_functional|torch|torchvision|torchaudio|quantized|autograd|inductor"
    "|profiler|mkldnn|mkl|xnnpack|onednn|fbgemm|at|cub|cudnn|cublas|cutlass|thrust|nccl|gloo|mpi|ucc|xccl|event"
    "|kinetoscope"
)
_OPERATOR = rf"\[?(?:{_NAMESPACES})(?:::|:|/)[\w:./\- ]*(?: \([^)]*\))?\]?"
_BACKWARD = r"(?:\w+Backward\d+|(?:torch::autograd::)?(?:AccumulateGrad|CopySlices|CopyBackwards|GraphRoot))"
_ENGINE = rf"autograd::engine::evaluate_function: {_BACKWARD}"
_KERNEL = (
    r".*(?:\b(?:at|c10|cub|cutlass|cudnn|thrust|xformers|flash)\w*::|nccl|rccl|cublas|cudnn|gemmk?|gemv|splitKreduce"
    r"|elementwise_kernel|reduce_kernel).*|triton_(?:poi|red|per|tem|for|mm)_fused_\w*"
    r"|(?:sm\d+|ampere|volta|turing|hopper)_\w*"
)
_CALL = r"(?:cuda|cu|hip)[A-Z]\w*|Mem(?:cpy|set)\b.*|(?:Context|Stream|Event) Sync\w*|Runtime Triggered \w+.*|Lazy .*"
_MARK = r"ProfilerStep#\d+|step \d+|Steps|PyTorch Profiler.*|record_param_comms|Command Buffer Full|Activity Buffer.*"
_FRAME = r"(?:torch/[\w./]+\(\d+\): [\w<>.]+|<(?:built-in|frozen)[^>]*>)"
_COUNTER = r"(?:cpu|process|memory|gpu|disk|net|network|swap)(?:[/ ].*)?"
_THREAD = (
    r"MainThread|python\d*|(?:thread|stream)(?: -?\d+)?(?: \((?:python|pt)\w*\))?\s*|(?:pt|torch|kinetoscope|cuda|nccl)[\w-]*"
    r"|Thread-\d+|GPU \d+"
)
_TORCHS = re.compile(
    "|".join((_OPERATOR, _BACKWARD, _ENGINE, _KERNEL, _CALL, _MARK, _FRAME, _COUNTER, _THREAD)), re.DOTALL
)
_CATEGORIES = frozenset(
    [
        "cpu_op",
        "Operator",
        "user_annotation",
        "gpu_user_annotation",
        "python_function",
        "cuda_runtime",
        "cuda_driver",
        "Runtime",
        "kernel",
        "Kernel",
        "gpu_memcpy",
        "gpu_memset",
        "Memcpy",
        "Memset",
        "cuda_sync",
        "overhead",
        "gc",
        "compile",
        "kinetoscope",
        "marker",
        "batch",
        "epoch",
        "dataloader",
        "step",
        "evaluation",
        "system",
        "fwdbwd",
    ]
)


def is_known(text: str) -> bool:
    """Whether a name is torch's or ours, and tells nothing about a user. A name that is not recognised is a user's."""
    return not text or text in _CATEGORIES or _TORCHS.fullmatch(text) is not None
