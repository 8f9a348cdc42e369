"""Names of torch, of its kernels and of its libraries, in contrast to those of users.

An operator is torch's if torch registers it (`torch_names.txt`). In the name of a kernel each identifier is judged by
itself: it is known if its outermost namespace is that of a library, or if it consists of words that libraries use.
"""

import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files

_LIBRARIES = frozenset(
    (
        *("at", "c10", "cub", "cute", "cutlass", "cudnn", "cublas", "cublasLt", "cask", "cask_cudnn", "thrust"),
        *("std", "cuda", "cooperative_groups", "nvfuser", "magma", "cusparse", "cufft", "cusolver", "nccl", "rccl"),
        *(
            "ck",
            "ck_tile",
            "hip",
            "hipcub",
            "rocprim",
            "rocblas",
            "miopen",
            "Tensile",
            "pytorch_flash",
            "fmha_cutlassF",
        ),
    )
)
_QUALIFIED = re.compile(
    r"(?<![\w:])(?:(?P<first>[A-Za-z_]\w*)|\(anonymous namespace\))"
    r"(?P<rest>(?:::(?:~?[A-Za-z_]\w*|\(anonymous namespace\)))*)(?!\w)"
)
_CPP = frozenset(
    (
        *("void", "bool", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "const", "volatile"),
        *("true", "false", "nullptr", "operator", "lambda", "auto", "enum", "struct", "class", "template", "typename"),
        *("size_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t"),
        *("half", "__half", "__half2", "bfloat16", "__nv_bfloat16", "nv_bfloat16", "float2", "float4", "int2", "int4"),
    )
)
# words of names that libraries compose, between underscores
_WORD = re.compile(
    r"\d*|(?:sm|s|f|h|bf|tf|i|u|e|v|k|b|c|r|x|stage|stages|align|ldg|ldgsts|split|warpgroupsize|tile|size|tilesize|cluster)"
    r"\d[\dx]*\w{0,3}|\d+x\d[\dx]*|\d+[a-z]{1,2}|[a-z]|[sdhczi]?(?:gemm|gemv|gemvx|gemvNSP|syrk|trsm|dot)\w{0,4}"
    r"|[sdhczi]\d+[a-z]?(?:gemm|cudnn)|(?:bf16|f16|f32|f64|f8|i8|s8|u8|tf32|e4m3|e5m2)+|(?:off|on|stages?|f2f|ldg|[NTS]{1,3})"
    r"|(?:ampere|volta|turing|hopper|maxwell|pascal|blackwell|kepler|xmma|tensorop|wmma|mma|wgmma|tma|simt|winograd)"
    r"|(?:nn|nt|tn|tt|tnn|tnt|ntn|ntt|nnn|nhwc|nchw|ndhwc|ncdhw|kcrs|krsc|nhwckrsc|fp16|fp32|fp64|fp8|bf16|int8|tf32|half)"
    r"|(?:cudnn|cublas|cublaslt|cutlass|nccl|rccl|flash|fmha|attention|fwd|bwd|dkdv|dq|infer|train|ex|kernel|kernels)"
    r"|(?:implicit|explicit|precomputed|convolve|convolution|conv|fprop|dgrad|wgrad|indexed|strided|batched|grouped)"
    r"|(?:interior|small|medium|large|relu|bias|act|sliced|splitK|split|reduce|reduction|reducer|scal|copy|transform)"
    r"|(?:execute|segment|device|host|multi|generic|engine|relative|spatial|norm|bn|pooling|pool|softmax|dropout|lrn)"
    r"|(?:warp|block|cta|persistent|simple|basic|lite|mixed|rowwise|col|row|major|general|algo|new|old|v2|v3|v4|alg0)"
    r"|(?:forward|backward|tensor|scalar|vector|unrolled|elementwise|vectorized|layout|trans|transpose|pad|init|main)"
    r"|(?:fft2d|fft3d|r2c|c2r|c2c|16x16|32x32|flip|filter|im2col|col2im|compute|postprocess|preprocess|data|grad)"
    r"|(?:gemmSN|gemmk1|gemv2T|gemv2N|dot|kernelEx|nchwToNhwcKernel|nhwcToNchwKernel|convolveNd)"
    r"|(?:Dev|Kernel|AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AlltoAll|Sum|Prod|Max|Min|Avg)+"
    r"|(?:ncclDevKernel|ncclKernel|rcclKernel|ncclDevKernelArgsStorage|RING|TREE|COLLNET|NVLS|PAT|CHAIN|DIRECT|LL|LL128)"
    r"|(?:SIMPLE|SumPostDiv|PreMulSum|bf16|f16|f32|f64|u8|u32|u64|i8|i32|i64|Storage|Generic)"
)
_MEMBERS = frozenset(("::Params", "::Arguments", "::SharedStorage"))
_TRITON = re.compile(r"triton_(?:poi|red|per|tem|for|mm|unk|spl)_(?:fused_)?(\w*)")
_KERNEL_FORM = re.compile(
    r"(?:void )?(?:[A-Za-z_]\w*|\(anonymous namespace\))(?:::|<).*|(?:nccl|rccl)(?:Dev)?Kernel_.*|triton_\w+"
    r"|(?:ampere|volta|turing|hopper|maxwell|pascal|blackwell|sm\d+|cudnn|cutlass|cublas)_\w+",
    re.DOTALL,
)


@cache
def _names() -> frozenset[str]:
    text = files("kinetoscope.formats").joinpath("torch_names.txt").read_text(encoding="utf-8")
    return frozenset(text.split())


@cache
def _words_of_operators() -> frozenset[str]:
    operators = (name.rpartition("::")[2] for name in _names() if "::" in name)
    return frozenset(word for operator in operators for word in operator.split("_"))


def is_operator(name: str) -> bool:
    """Return whether torch registers an operator of this name, with or without an overload."""
    return name.partition(".")[0] in _names() and "::" in name


def is_backward_node(name: str) -> bool:
    """Return whether a node of the backward pass is one of torch's."""
    return name in _names() and "::" not in name


def is_kernel(name: str) -> bool:
    """Return whether all identifiers in the name of a kernel are known to be those of torch and of its libraries."""
    return _KERNEL_FORM.fullmatch(name) is not None and redact_kernel(name, lambda _: "") == name


def has_kernel_form(name: str) -> bool:
    """Return whether a name has the form of a compiled kernel's, also of a user's."""
    return _KERNEL_FORM.fullmatch(name) is not None


def redact_kernel(name: str, replace: Callable[[str], str]) -> str:
    """Return the name of a kernel with each unknown identifier replaced."""
    return _QUALIFIED.sub(lambda match: match[0] if _is_known_identifier(match) else replace(match[0]), name)


def _is_known_identifier(match: re.Match[str]) -> bool:
    first, rest = match["first"], match["rest"]
    is_inner = match.string[: match.start()].endswith((">::", "}::", ")::"))  # a member of what is before it
    if first is None:
        return not rest or all(
            map(_has_known_words, filter(None, rest.replace("(anonymous namespace)", "").split("::")))
        )
    if first in _LIBRARIES or any(first.startswith(f"{library}_v") for library in _LIBRARIES):
        return True
    if rest:
        return rest in _MEMBERS and _has_known_words(first)
    return first in _CPP or is_inner or _has_known_words(first)


def _has_known_words(identifier: str) -> bool:
    triton = _TRITON.fullmatch(identifier)
    if triton is not None:
        return all(word in _words_of_operators() or word.isdecimal() for word in triton[1].split("_"))
    return all(map(_WORD.fullmatch, identifier.split("_")))
