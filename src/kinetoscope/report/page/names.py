"""report: which names in a page the user chose, and what is written instead of them with ``--redact``."""

import re

_NAMESPACES = (
    "aten|prim|prims|c10|c10d|_c10d_functional|c10d_functional|torch|torchvision|torchaudio|quantized|autograd|inductor"
    "|profiler|mkldnn|mkl|xnnpack|onednn|fbgemm"
)
_OPERATOR = rf"(?:{_NAMESPACES})::[\w:.]+|(?:nccl|gloo|mpi|ucc|xccl):\w+|\[memory\]"
_OURS = (
    r"(?:event|kinetoscope)/(?:epoch|batch|dataloader|forward|backward|loss|optimizer|eval|stop|start|save|drain|merge)"
)
_BACKWARD = r"(?:\w+Backward\d+|(?:torch::autograd::)?(?:AccumulateGrad|CopySlices|CopyBackwards|GraphRoot))"
_ENGINE = rf"autograd::engine::evaluate_function: {_BACKWARD}"
_KERNEL = (
    r"(?:void )?(?:at|c10|cub|cutlass|cudnn|cublas|cublasLt|thrust|cask_cudnn\w*)::.*|(?:nccl|rccl)(?:Dev)?Kernel_\w+.*"
    r"|void (?:gemm|gemv|split|dot|reduce|cublas|cudnn|cutlass)\w*_kernel\w*\b.*|cudnn_\w*(?:volta|ampere|cudnn)\w*"
    r"|void (?:(?:im|ex)plicit_convolve_sgemm|wgrad_alg0_engine|fft2d_[rc]2[rc]_\w+|n[ch]\w{2}ToN[ch]\w{2}Kernel)<.*"
    r"|void \(anonymous namespace\)::softmax_warp_\w+<.*"
    r"|triton_(?:poi|red|per|tem|for|mm)_fused_\w*|(?:sm\d+|ampere|volta|turing|hopper|maxwell)_\w*(?:gemm|cudnn)\w*"
)
_CALL = (
    r"cuda[A-Z]\w*|cu(?:Launch|Mem|Stream|Event|Module|Ctx)\w*|hip[A-Z]\w*|Mem(?:cpy|set) (?:[HDP]to[HDP] )?\(.*\)"
    r"|(?:Context|Stream|Event) Sync\w*"
)
_MARK = (
    r"ProfilerStep#\d+|step \d+|Steps|PyTorch Profiler(?: \(\d+\))?|record_param_comms|detach_?|"
    r"DistributedDataParallel\.forward|torch\.distributed\.ddp\.reducer::\w+|"
    r"enumerate\(DataLoader\)#_(?:Multi|Single)Process\w*DataLoaderIter\.__next__|"
    r"Optimizer\.\w+#(?:Adam|AdamW|SGD|RMSprop|Adagrad|Adadelta|Adamax|NAdam|RAdam|LBFGS|Muon)\.\w+|"
    r"(?:Command|Activity) Buffer \w+"
)
_FRAME = r"torch/[\w./]+\(\d+\): [\w<>.]+|<(?:built-in|frozen)[^>]*>"
_COUNTER = (
    r"(?:cpu|process|memory|gpu|disk)(?:/(?:virtual|swap|cuda|\d+))*"
    r"(?: (?:used|free|available|resident|threads|allocated|reserved|read|write|power|temperature|memory|memory used))?"
)
_THREAD = (
    r"(?:(?:DataLoader worker \d+: )?samples of )?MainThread|DataLoader worker \d+|sampled every [\d.]+ ms"
    r"|python\d*|(?:thread|stream)(?: -?\d+)?(?: \((?:python\d*|pt_main_thread)\))?\s*|kinetoscope-[a-z]+"
    r"|pt_(?:main_thread|gloo_runloop|autograd_\d+|nccl_(?:watchdg|heartbt)|data_(?:worker|pin))|Thread-\d+|GPU \d+"
)
_TORCHS = re.compile(
    "|".join((_OPERATOR, _OURS, _BACKWARD, _ENGINE, _KERNEL, _CALL, _MARK, _FRAME, _COUNTER, _THREAD)), re.DOTALL
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
        "concurrent_kernel",
        "mtia_ccp_events",
        "mtia_runtime",
        "hpu_op",
        "xpu_runtime",
        "xpu_driver",
        "privateuse1_runtime",
        "privateuse1_driver",
        "stack_sample",
        "stack_sample,library",
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
