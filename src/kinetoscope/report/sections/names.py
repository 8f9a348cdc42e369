"""report: which names in a page the user chose, and what is written instead of them with ``--redact``."""

import builtins
import re

from kinetoscope.formats.chrome_scan import ARGUMENTS

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
_FRAME = r"torch/[\w./]+\(\d+\): [\w<>.]+|<frozen [\w.]+>(?:\(\d+\): [\w<>.]+)?"
_BUILT_IN = re.compile(r"<built-in (?:function|method) (\w+)(?: of ([\w.]+) object)?(?: at 0x[0-9a-fA-F]+)?>")
_TORCHS_TYPES = re.compile(r"torch(?:\.\w+)*|Tensor|Parameter")
_BUILT_INS = frozenset(dir(builtins)).union(*map(dir, (str, bytes, list, dict, set, tuple, int, float, object, type)))
_FUNCTIONS = re.compile(
    r"linear|bilinear|conv1d|conv2d|conv3d|conv_transpose2d|relu|relu_|gelu|silu|softmax|log_softmax|embedding"
    r"|layer_norm|batch_norm|group_norm|rms_norm|dropout|dropout_|matmul|mm|bmm|addmm|einsum|cat|stack|split"
    r"|chunk|zeros|zeros_like|ones|ones_like|empty|empty_like|full|arange|randn|rand|randint|tensor|as_tensor"
    r"|from_numpy|numpy|item|tolist|to|cuda|cpu|contiguous|view|reshape|permute|transpose|flatten|squeeze"
    r"|unsqueeze|add|add_|sub|mul|mul_|div|div_|pow|sqrt|exp|log|sum|mean|max|min|abs|clamp|where|gather"
    r"|scatter|topk|sort|argmax|detach|detach_|clone|copy_|zero_|fill_|backward|run_backward|requires_grad_"
    r"|scaled_dot_product_attention|cross_entropy_loss|nll_loss_nd|mse_loss|max_pool2d|avg_pool2d"
    r"|adaptive_avg_pool2d|lstm|gru|perf_counter|perf_counter_ns|time|sleep|acquire|release|read|write|recv"
    r"|poll|select|dumps|loads|collect"
)
_COUNTER = (
    r"(?:cpu|process|memory|gpu|disk)(?:/(?:virtual|swap|cuda|\d+))*"
    r"(?: (?:used|free|available|resident|threads|allocated|reserved|read|write|power|temperature|memory|memory used))?"
    r"|loop thread(?: (?:running|starved|blocked|waiting))?|processors"
)
_THREAD = (
    r"(?:(?:DataLoader worker \d+: )?samples of )?MainThread|DataLoader worker \d+|sampled every [\d.]+ ms"
    r"|python\d*|(?:thread|stream)(?: -?\d+)?(?: \((?:python\d*|pt_main_thread)\))?\s*|kinetoscope-[a-z]+"
    r"|pt_(?:main_thread|gloo_runloop|autograd_\d+|nccl_(?:watchdg|heartbt)|data_(?:worker|pin))|Thread-\d+|GPU \d+"
)
_STATE = (
    r"running; the line is a later one|waits: (?:GIL|another thread|sleep|fsync|file|folder|network|pipe|events"
    r"|child process|device|page fault|system call)"
)
_COLLECTIVE = (
    r"_?(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?allv?|broadcast|reduce|gather|scatter|send|recv|barrier)"
    r"(?:_?(?:base|coalesced|into_tensor|tensor|oop))*|nccl|gloo|mpi|default_pg"
)
_VALUE = (
    r"[-\[\](){}\d\s,.x]*|True|False|(?:unsigned |long )?(?:float|double|int|char|short|long|bool|Half|BFloat16)\d*"
    r"|Scalar|(?:Scalar|Tensor|Generic)List|Tensor|Int|Float|Bool|Long|Double|Byte|Device|Unknown"
)
_TORCHS = re.compile(
    "|".join(
        (
            *(_OPERATOR, _OURS, _BACKWARD, _ENGINE, _KERNEL, _CALL, _MARK, _FRAME, _COUNTER, _THREAD),
            *(_STATE, _COLLECTIVE, _VALUE),
        )
    ),
    re.DOTALL,
)
_ARGUMENT = re.compile("|".join((_OPERATOR, _COLLECTIVE, _VALUE)))
_DEVICE = re.compile(
    r"(?:(?:NVIDIA|AMD|Intel(?:\(R\))?|Apple|Tesla|Quadro|GeForce|GTX|RTX|TITAN|Radeon|Instinct|Arc|Max|Ti|Super|SUPER"
    r"|Generation|Ada|Graphics|Laptop|GPU|Data|Center|Device|Orin|Xavier|Thor|Superchip|PCIe|PCIE|NVL|SXM\d?|MIG|HBM\d?e?"
    r"|[A-Z]{0,2}\d{1,4}[A-Za-z]{0,2}|\dg\.\d+gb)(?:[\s-]+|$))+"
)
_ARGUMENTS = frozenset(
    [
        *(key for keys in ARGUMENTS.values() for key in keys),
        *("Input Dims", "Input Strides", "Concrete Inputs", "Concrete Args", "Kwinputs", "Module Hierarchy"),
        *("Call stack", "Ev Idx", "Record function id", "Fwd thread id", "Sequence number", "Trace name"),
        *(
            "Trace iteration",
            "Op count",
            "Ev count",
            "Python thread",
            "Src Rank",
            "Dst Rank",
            "Seq",
            "Is asynchronized op",
        ),
        *("Process Group Name", "Process Group Description", "Process Group Ranks", "Group Ranks", "Global rank start"),
        *("Global rank stride", "Out split size", "In split size", "Comms Id", "Rank", "backend"),
        *("grid", "block", "queued", "context", "cbid", "priority", "graph id", "graph node id", "Device Type"),
        *("registers per thread", "shared memory", "blocks per SM", "warps per SM", "est. achieved occupancy %"),
        *("memory bandwidth (GB/s)", "kernel file", "kernel backend", "kernel kwargs", "kernel hash", "num_stages"),
        *(
            "num_warps",
            "wait_on_stream",
            "wait_on_cuda_event_record_corr_id",
            "cuda_sync_kind",
            "wait_on_cuda_event_id",
        ),
        *("Wait on Stream", "event_id", "flow_id", "fromDevice", "inDevice", "toDevice", "Overflow", "flops"),
        *("epoch", "batch", "cut", "begin_ns", "end_ns", "microbatch", "not_finite", "overlap", "overlap_of", "open"),
        *("generation", "collected", "uncollectable", "line", "function", "guard", "dataset", "batch_size"),
        *("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "holder", "kind", "place", "steps"),
        *("tensors", "graphs", "bytes", "device", "holders", "objects", "functions", "complete"),
    ]
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
        "stack_sample,state",
        "processors",
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
    return not text or text in _CATEGORIES or _TORCHS.fullmatch(text) is not None or _is_built_in(text)


def _is_built_in(text: str) -> bool:
    """Whether a frame is of a function of Python's own, or of torch's, in C."""
    match = _BUILT_IN.fullmatch(text)
    if match is None:
        return False
    name, of_type = match.groups()
    return bool(name in _BUILT_INS or _FUNCTIONS.fullmatch(name) or _TORCHS_TYPES.fullmatch(of_type or ""))


def is_known_value(text: str) -> bool:
    """Whether a text in the arguments of a span is torch's or ours: a type, an operation, a shape."""
    return _ARGUMENT.fullmatch(text) is not None


def is_known_argument(name: str) -> bool:
    """Whether the name of an argument of a span is torch's, Kineto's or ours."""
    return name in _ARGUMENTS


def is_known_device(name: str) -> bool:
    """Whether the name of a device has only words of its makers."""
    return _DEVICE.fullmatch(name) is not None
