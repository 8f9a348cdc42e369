"""Private names of torch that the sources use, and the consequence where one is missing."""

from kinetoscope.core.background.private_names import PrivateAttribute, PrivateObject


# DataLoaders.
def _iterator_attribute(attribute: str, kind: str = "_BaseDataLoaderIter") -> PrivateAttribute:
    lost = "that setting of DataLoaders is not recorded"
    return PrivateAttribute("torch.utils.data.dataloader", f"{kind}.{attribute}", lost)


loader_dataset = _iterator_attribute("_dataset")
loader_sampler = _iterator_attribute("_index_sampler")
loader_settings = {
    "num_workers": _iterator_attribute("_num_workers"),
    "prefetch_factor": _iterator_attribute("_prefetch_factor", "_MultiProcessingDataLoaderIter"),
    "pin_memory": _iterator_attribute("_pin_memory"),
    "persistent_workers": _iterator_attribute("_persistent_workers"),
}

worker_loop = PrivateObject(
    "torch.utils.data._utils.worker",
    "_worker_loop",
    "the stacks of DataLoader workers are not sampled",
    loaded="torch.utils.data",
)

# Compilations by Dynamo.
_NO_COMPILATIONS = "compilations are not recorded"
_NO_DESCRIPTION = "recorded compilations lack details of the function and of the failed guard"


def _handler_method(method: str) -> PrivateObject:
    return PrivateObject(
        "torch._dynamo.callback", f"callback_handler.{method}", _NO_COMPILATIONS, loaded="torch._dynamo"
    )


compilation_callbacks = tuple(
    _handler_method(f"{verb}_{end}_callback") for verb in ("register", "remove") for end in ("start", "end")
)
"""Functions that add a callback for the start and the end of a compilation, and that remove them."""


compilation_metrics = PrivateObject(
    "torch._dynamo.utils", "get_compilation_metrics", _NO_DESCRIPTION, loaded="torch._dynamo"
)


def _metrics_field(field: str) -> PrivateAttribute:
    return PrivateAttribute("torch._dynamo.utils", f"CompilationMetrics.{field}", _NO_DESCRIPTION)


compilation_id = _metrics_field("compile_id")
function_name = _metrics_field("co_name")
function_file = _metrics_field("co_filename")
function_line = _metrics_field("co_firstlineno")
recompile_reason = _metrics_field("recompile_reason")
metrics_fields = (compilation_id, function_name, function_file, function_line, recompile_reason)

COMPILER_FILE = "/torch/_dynamo/convert_frame.py"
"""File with a function that runs exactly while torch's compiler does, not while compiled code runs."""

compiler = PrivateObject(
    "torch._dynamo.convert_frame",
    "__file__",
    "GC pauses that torch's compiler causes count like all others",
    loaded="torch._dynamo",
)

# Tensors and their graphs.
_NO_TENSORS = "memory leaks and float64 tensors are not found"
_NO_GRAPHS = "graphs that grow from step to step are not found"


def _tensor_attribute(name: str, lost: str = _NO_TENSORS) -> PrivateObject:
    return PrivateObject("torch._C", name, lost, loaded="torch")


without_overrides = _tensor_attribute("DisableTorchFunction")
tensor_graph = _tensor_attribute("TensorBase.grad_fn")
tensor_device = _tensor_attribute("TensorBase.device")
tensor_type = _tensor_attribute("TensorBase.dtype")
next_sequence_number = PrivateObject("torch.autograd", "_get_sequence_nr", _NO_GRAPHS, loaded="torch")
sequence_number = _tensor_attribute("_FunctionBase._sequence_nr", _NO_GRAPHS)
tensor_accessors = (without_overrides, tensor_graph, tensor_device, tensor_type)
_saved_tensors = _tensor_attribute("_FunctionBase._raw_saved_tensors", "tensors that keep their graphs are not found")

# Modules and their hooks.
_NO_HOOKS = "hooks there that keep tensors are not found"


def _module_attribute(attribute: str, lost: str) -> PrivateAttribute:
    return PrivateAttribute("torch.nn", f"Module.{attribute}", lost)


module_children = _module_attribute("_modules", "modules within modules are not scanned")
module_parameters = _module_attribute("_parameters", "parameters of modules are not scanned")
module_hooks = [
    _module_attribute(attribute, _NO_HOOKS)
    for attribute in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
]
parameter_hooks = [
    _tensor_attribute(f"TensorBase.{attribute}", _NO_HOOKS)
    for attribute in ("_backward_hooks", "_post_accumulate_grad_hooks")
]
module_attributes = [module_children, module_parameters, *module_hooks]
"""Attributes of each torch module."""


def saved_tensor_attributes(owner: type) -> list[str]:
    """Return the attributes of an operation's class that have its saved tensors, packed or not."""
    if _saved_tensors.find() is None:
        return []
    return [name for name in dir(owner) if name.startswith(_saved_tensors.attribute.removesuffix("tensors"))]
