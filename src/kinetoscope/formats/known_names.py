"""Names in traces by which torch, Kineto and Kinetoscope are recognised; all other names are users'."""

import builtins
import re
from collections.abc import Callable

from kinetoscope.formats.torch_names import is_backward_node, is_kernel, is_operator

Vocabulary = Callable[[str], bool]
"""A function that returns whether a string is a known name."""

_KINETOSCOPE_SPANS = (
    r"(?:event|kinetoscope)/(?:epoch|batch|dataloader|forward|backward|loss|optimizer|eval|stop|start|save|drain|merge)"
    r"|kinetoscope/(?:scan live tensors|look at memory)"  # the older name is in older traces
)
_BACKWARD = r"(?:torch::autograd::)?(?:AccumulateGrad|CopySlices|CopyBackwards|GraphRoot)"
_ENGINE = "autograd::engine::evaluate_function: "
_LIBRARY_OPERATOR = r"torchvision::(?:nms|(?:ps_)?roi_(?:align|pool)|deform_conv2d)"
_API = (
    r"(?:Launch|Memcpy|Memset|Malloc|Free|Stream|Event|Device|Func|Get|Set|Graph|Host|Occupancy|Peek|Ipc|Mem|Pointer|Module"
    r"|Ctx|Thread|Driver|Runtime|Array|Kernel|Profiler|Init|Import|External|User|Link|Library|Tex|Surf|Destroy|Create)"
)
_CALL = (
    rf"(?:cuda|cu|hip){_API}(?:{_API}|[A-Z][a-z]+|[A-Z\d]|_v\d+|_ptsz)*"
    r"|Mem(?:cpy|set) (?:[HDP]to[HDP] )?\((?:Pinned|Pageable|Device|Array|Managed|Unified|Unknown|Host)"
    r"(?: -> (?:Pinned|Pageable|Device|Array|Managed|Unified|Unknown|Host))?\)"
    r"|(?:Context|Stream|Event) Sync\w*"
)
_MARK = (
    r"ProfilerStep#\d+|step \d+|Steps|PyTorch Profiler(?: \(\d+\))?|record_param_comms|detach_?|"
    r"DistributedDataParallel\.forward|torch\.distributed\.ddp\.reducer::(?:copy_bucket_to_grad|search_unused_parameters|mul_out)|"
    r"enumerate\(DataLoader\)#_(?:MultiProcessing|SingleProcess)DataLoaderIter\.__next__|"
    r"Optimizer\.\w+#(?:Adam|AdamW|SGD|RMSprop|Adagrad|Adadelta|Adamax|NAdam|RAdam|LBFGS|Muon)\.\w+|"
    r"(?:Command|Activity) Buffer (?:Full|Request|Flush)"
)
_PACKAGES = (
    "_C|_dynamo|_functorch|_higher_order_ops|_inductor|_library|_logging|_ops|_prims|_prims_common|_refs|_subclasses"
    "|_tensor|_utils|_utils_internal|accelerator|ao|amp|autograd|backends|compiler|cpu|cuda|distributed|distributions|fft"
    "|func|functional|futures|fx|hub|jit|library|linalg|masked|mps|mtia|multiprocessing|nested|nn|onnx|optim|overrides"
    "|package|profiler|quantization|random|return_types|serialization|signal|sparse|special|storage|testing|types|utils"
    "|version|xpu|__init__|_classes|_compile|_jit_internal|_linalg_utils|_lobpcg|_lowrank|_namedtensor_internals"
    "|_python_dispatcher|_sources|_storage_docs|_tensor_str|_torch_docs|_vmap_internals|_weights_only_unpickler|_awaits"
)
_FROZEN = "importlib\\._bootstrap(?:_external)?|zipimport|abc|codecs|genericpath|io|os|posixpath|ntpath|runpy|site|stat"
_FRAME = (
    rf"torch/(?:{_PACKAGES})(?:\.py|/[\w./]+)\(\d+\): [\w<>.]+"
    rf"|<frozen (?:{_FROZEN}|_collections_abc|getpath)>(?:\(\d+\): [\w<>.]+)?"
)
_BUILT_IN = re.compile(r"<built-in (?:function|method) (\w+)(?: of ([\w.]+) object)?(?: at 0x[0-9a-fA-F]+)?>")
_TORCHS_TYPES = re.compile(
    r"torch(?:\._C(?:\.\w+)*|\._VF|\.(?:Tensor|Size|Generator|device|dtype|layout|memory_format|finfo|iinfo|Stream|Event"
    r"|nn\.parameter\.Parameter|cuda\.(?:Stream|Event)|distributed\.\w*Group\w*))|Tensor|Parameter|PyCapsule|type|module"
)
_BUILT_INS = frozenset(dir(builtins)).union(*map(dir, (str, bytes, list, dict, set, tuple, int, float, object, type)))
_TYPES_OF_ANY_EXTENSION = frozenset(("PyCapsule", "type", "module"))  # also of functions in C that are not torch's
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
    r"|loop thread|processors"
)
_THREAD = (
    r"(?:(?:DataLoader worker \d+: )?samples of )?MainThread|DataLoader worker \d+|sampled every [\d.]+ ms"
    r"|python\d*|(?:thread|stream) -?\d+(?: \((?:python\d*|pt_main_thread)\))?\s*"
    r"|kinetoscope-(?:clock|merge|pulse|slow-steps|system|torch-writer|view|watch|writer)(?:-\d+)?"
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
    r"|c10::(?:Half|BFloat16|Float8_\w{4,8}|complex<(?:float|double|c10::Half)>)"
    r"|Scalar|(?:Scalar|Tensor|Generic)List|Tensor|Int|Float|Bool|Long|Double|Byte|Device|Unknown"
)
_DEVICE = re.compile(
    r"(?:(?:NVIDIA|AMD|Intel(?:\(R\))?|Apple|Tesla|Quadro|GeForce|GTX|RTX|TITAN|Radeon|Instinct|Arc|Max|Ti|Super|SUPER"
    r"|Generation|Ada|Graphics|Laptop|GPU|Data|Center|Device|Orin|Xavier|Thor|Superchip|PCIe|PCIE|NVL|SXM\d?|MIG|HBM\d?e?"
    r"|[A-Z]{0,2}\d{1,4}[A-Za-z]{0,2}|\dg\.\d+gb)(?:[\s-]+|$))+"
)


def _matcher(*patterns: str) -> Vocabulary:
    compiled = re.compile("|".join(patterns), re.DOTALL)
    return lambda text: compiled.fullmatch(text) is not None


is_kinetoscope_span = _matcher(_KINETOSCOPE_SPANS)
is_call = _matcher(_CALL, r"(?:Command|Activity) Buffer (?:Full|Request|Flush)")
is_annotation = _matcher(
    *(_MARK, "Iteration Start: PyTorch Profiler|Record Window End", _BACKWARD, rf"{_ENGINE}{_BACKWARD}"),
    rf"(?:nccl|gloo|mpi|ucc|xccl):(?:{_COLLECTIVE})",
)
is_counter = _matcher(_COUNTER)
is_track = _matcher(
    rf"(?:{_THREAD}|(?:Traces|Spans)(?: · (?:Trace )?PyTorch Profiler)?|(?:Trace )?PyTorch Profiler|rank(?: \d+)?"
    r"|phases of the loop|profiler)(?: \(overlap \d+\))?",
    r"GPU \d+ stream \d+|CPU",
)
is_collection = _matcher(r"gc generation \d+")
is_state = _matcher(_STATE, r"sampled every [\d.]+ ms")
is_collective = _matcher(_COLLECTIVE)
is_backend = _matcher(
    r"(?:(?:cpu|cuda|xpu):)?(?:nccl|gloo|mpi|ucc|xccl)(?:,(?:cpu|cuda|xpu):(?:nccl|gloo|mpi|ucc|xccl))*|triton"
)
is_group = _matcher(r"default_pg|undefined|\d*")
is_number = _matcher(r"[-+\[\](){}\d\s,.]*|[-+\d.]+e[-+]?\d+|True|False|None|0x[\da-fA-F]+")
is_type = _matcher(_VALUE)
is_device = _matcher(_DEVICE.pattern, "")
is_start = _matcher(r"\d{8}T\d{6}-\d+-[\da-f]+|")
is_version = _matcher(r"\d[\d.]*\w*")
is_flow = _matcher("fwdbwd|ac2g|async_gpu|async_cpu_to_gpu|forward_backward")
is_builtin_kind = _matcher("tensor|module|list|dict|set|tuple|deque|OrderedDict|defaultdict|default")
_is_library_operator = _matcher(_LIBRARY_OPERATOR)
_is_frame = _matcher(_FRAME)


def is_call_of_torch(text: str) -> bool:
    """Return whether a name is one of torch's operators, backward nodes or annotations."""
    is_one = is_operator(text) or is_backward_node(text.removeprefix(_ENGINE))
    return is_one or is_annotation(text) or _is_library_operator(text)


def is_frame(text: str) -> bool:
    """Return whether a frame is one of torch's, or of a function in C of Python's own."""
    return _is_frame(text) or _is_built_in(text)


def is_name_of_torch(text: str) -> bool:
    """Return whether a name is torch's, whatever it names: traces of other profilers do not show that."""
    return is_call_of_torch(text) or is_kernel(text) or is_call(text) or is_frame(text)


def _is_built_in(text: str) -> bool:
    """Return whether a frame is of a function of Python's own, or of torch's, in C."""
    match = _BUILT_IN.fullmatch(text)
    if match is None:
        return False
    name, of_type = match.groups()
    if of_type is None:
        return bool(name in _BUILT_INS or _FUNCTIONS.fullmatch(name))
    is_torchs = _TORCHS_TYPES.fullmatch(of_type) is not None and of_type not in _TYPES_OF_ANY_EXTENSION
    return is_torchs or (is_known_type(of_type) and bool(name in _BUILT_INS or _FUNCTIONS.fullmatch(name)))


def is_known_type(name: str) -> bool:
    """Return whether a type is one of Python's or of torch's."""
    return name in _BUILT_INS or _TORCHS_TYPES.fullmatch(name) is not None
