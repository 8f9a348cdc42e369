"""sources: the names of torch that it does not promise to keep, and what is lost where one is missing."""

from kinetoscope.core.background.private_names import PrivateAttribute, PrivateObject


# DataLoaders.
def _of_iterator(attribute: str, kind: str = "_BaseDataLoaderIter") -> PrivateAttribute:
    lost = "that part of how DataLoaders are set up is not recorded"
    return PrivateAttribute("torch.utils.data.dataloader", f"{kind}.{attribute}", lost)


loader_dataset = _of_iterator("_dataset")
loader_sampler = _of_iterator("_index_sampler")
loader_settings = {
    "num_workers": _of_iterator("_num_workers"),
    "prefetch_factor": _of_iterator("_prefetch_factor", "_MultiProcessingDataLoaderIter"),
    "pin_memory": _of_iterator("_pin_memory"),
    "persistent_workers": _of_iterator("_persistent_workers"),
}

worker_loop = PrivateObject(
    "torch.utils.data._utils.worker",
    "_worker_loop",
    "the stacks of DataLoader workers are not sampled",
    loaded="torch.utils.data",
)

# Dynamo: what it compiles.
_NO_COMPILATIONS = "compilations are not recorded"
_NO_DESCRIPTION = "the compilations that are recorded say less of their function and of the guard that failed"


def _of_handler(method: str) -> PrivateObject:
    return PrivateObject(
        "torch._dynamo.callback", f"callback_handler.{method}", _NO_COMPILATIONS, loaded="torch._dynamo"
    )


compilation_callbacks = tuple(
    _of_handler(f"{verb}_{end}_callback") for verb in ("register", "remove") for end in ("start", "end")
)
"""What adds a callback for the start of a compilation and one for its end, and what removes them."""


compilation_metrics = PrivateObject(
    "torch._dynamo.utils", "get_compilation_metrics", _NO_DESCRIPTION, loaded="torch._dynamo"
)


def _of_metrics(field: str) -> PrivateAttribute:
    return PrivateAttribute("torch._dynamo.utils", f"CompilationMetrics.{field}", _NO_DESCRIPTION)


compilation_id = _of_metrics("compile_id")
function_name = _of_metrics("co_name")
function_file = _of_metrics("co_filename")
function_line = _of_metrics("co_firstlineno")
recompile_reason = _of_metrics("recompile_reason")
of_metrics = (compilation_id, function_name, function_file, function_line, recompile_reason)

COMPILER = "/torch/_dynamo/convert_frame.py"
"""A function of this file runs as long as torch's compiler does, and never while what it compiled runs."""

compiler = PrivateObject(
    "torch._dynamo.convert_frame",
    "__file__",
    "GC pauses that torch's compiler causes count like all others",
    loaded="torch._dynamo",
)

# Tensors and their graphs.
_NO_TENSORS = "memory leaks and float64 tensors are not found"
_NO_GRAPHS = "graphs that grow from step to step are not noticed"


def _of_tensor(name: str, lost: str = _NO_TENSORS) -> PrivateObject:
    return PrivateObject("torch._C", name, lost, loaded="torch")


without_overrides = _of_tensor("DisableTorchFunction")
tensor_graph = _of_tensor("TensorBase.grad_fn")
tensor_device = _of_tensor("TensorBase.device")
tensor_type = _of_tensor("TensorBase.dtype")
next_sequence_number = PrivateObject("torch.autograd", "_get_sequence_nr", _NO_GRAPHS, loaded="torch")
sequence_number = _of_tensor("_FunctionBase._sequence_nr", _NO_GRAPHS)
of_tensors = (without_overrides, tensor_graph, tensor_device, tensor_type)
_saved_tensors = _of_tensor("_FunctionBase._raw_saved_tensors", "tensors that keep their graphs are not noticed")

# Modules and their hooks.
_NO_HOOKS = "hooks there that keep tensors are not found"


def _of_module(attribute: str, lost: str) -> PrivateAttribute:
    return PrivateAttribute("torch.nn", f"Module.{attribute}", lost)


module_children = _of_module("_modules", "what modules within modules hold is not looked at")
module_parameters = _of_module("_parameters", "parameters of modules are not looked at")
module_hooks = [
    _of_module(attribute, _NO_HOOKS)
    for attribute in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
]
parameter_hooks = [
    _of_tensor(f"TensorBase.{attribute}", _NO_HOOKS) for attribute in ("_backward_hooks", "_post_accumulate_grad_hooks")
]
of_modules = [module_children, module_parameters, *module_hooks]
"""What each module of torch's has."""


def names_of_saved(owner: type) -> list[str]:
    """The attributes of a class of operations with the tensors that an operation saves, packed or not."""
    if _saved_tensors.find() is None:
        return []
    return [name for name in dir(owner) if name.startswith(_saved_tensors.attribute.removesuffix("tensors"))]
