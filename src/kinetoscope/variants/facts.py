"""Facts about a training program that decide which variants apply: its loaders, optimizers and threads."""

import inspect
import sys
import weakref
from collections.abc import Callable
from typing import Any

import msgspec

from kinetoscope.core.paths.available_cores import count_cores
from kinetoscope.hooks.patching import ReplacedMethod

DEFAULT_BUCKET_CAP_MB = 25
"""Torch's own default."""


class LoaderFacts(msgspec.Struct, frozen=True):
    """The arguments of a DataLoader, and the number of loops over it."""

    num_workers: int
    is_map_style: bool
    prefetch_factor: int | None = None
    pin_memory: bool = False
    persistent_workers: bool = False
    num_loops: int = 0


class OptimizerFacts(msgspec.Struct, frozen=True):
    """An optimizer that stepped; ``fused`` and ``foreach`` are None where it has no such argument or default."""

    name: str
    num_parameters: int
    takes_fused: bool
    takes_foreach: bool
    fused: bool | None = None
    foreach: bool | None = None
    is_on_device: bool = False


class DDPFacts(msgspec.Struct, frozen=True):
    """The arguments of a DistributedDataParallel."""

    bucket_cap_mb: float
    gradient_as_bucket_view: bool
    static_graph: bool


class Facts(msgspec.Struct, frozen=True):
    """Features that a training process used until its last measured step."""

    num_threads: int = 1
    num_cores: int = 1
    """Cores that a rank may use: those of the machine divided by its ranks."""
    has_device: bool = False
    loaders: list[LoaderFacts] = []
    optimizers: list[OptimizerFacts] = []
    ddp: list[DDPFacts] = []
    num_distributions: int = 0
    """Distributions of torch that were made with validation."""
    num_kept_gradients: int = 0
    """Calls of ``zero_grad(set_to_none=False)``."""


class FactsWatch:
    """Collector of `Facts` in a training process; it wraps calls, so its start is not timed."""

    def __init__(self) -> None:
        self._loaders: list[tuple[Callable[[], Any], LoaderFacts]] = []
        self._loops: dict[int, int] = {}
        self._optimizers: dict[int, OptimizerFacts] = {}
        self._ddp: list[DDPFacts] = []
        self._num_distributions = self._num_kept_gradients = 0

    def install(self) -> None:
        """Start to collect. Torch must be loaded."""
        torch: Any = sys.modules["torch"]
        loader: Any = torch.utils.data.DataLoader
        ReplacedMethod(loader, "__init__", self._make_loader)
        ReplacedMethod(loader, "__iter__", self._start_loop)
        ReplacedMethod(torch.optim.Optimizer, "zero_grad", self._count_kept_gradients)
        ReplacedMethod(torch.nn.Module, "zero_grad", self._count_kept_gradients)
        ReplacedMethod(torch.distributions.Distribution, "__init__", self._make_distribution)
        ReplacedMethod(torch.nn.parallel.DistributedDataParallel, "__init__", self._make_ddp)
        register = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook
        register(self._record_optimizer)

    def collect(self, num_local_ranks: int) -> Facts:
        """Return what was seen so far."""
        torch: Any = sys.modules["torch"]
        loaders = [
            msgspec.structs.replace(facts, num_loops=self._loops.get(number, 0))
            for number, (_, facts) in enumerate(self._loaders)
        ]
        return Facts(
            num_threads=torch.get_num_threads(),
            num_cores=max(1, count_cores() // max(1, num_local_ranks)),
            has_device=torch.cuda.is_available() and torch.cuda.is_initialized(),
            loaders=loaders,
            optimizers=list(self._optimizers.values()),
            ddp=self._ddp,
            num_distributions=self._num_distributions,
            num_kept_gradients=self._num_kept_gradients,
        )

    def _make_loader(self, original: Callable[..., Any], loader: Any, *arguments: Any, **options: Any) -> None:
        original(loader, *arguments, **options)
        iterable: Any = sys.modules["torch.utils.data"].IterableDataset
        facts = LoaderFacts(
            loader.num_workers,
            not isinstance(loader.dataset, iterable),
            loader.prefetch_factor,
            bool(loader.pin_memory),
            bool(loader.persistent_workers),
        )
        self._loaders.append((weakref.ref(loader), facts))

    def _start_loop(self, original: Callable[..., Any], loader: Any) -> Any:
        for number, (known, _) in enumerate(self._loaders):
            if known() is loader:
                self._loops[number] = self._loops.get(number, 0) + 1
        return original(loader)

    def _count_kept_gradients(self, original: Callable[..., Any], owner: Any, set_to_none: bool = True) -> Any:
        self._num_kept_gradients += not set_to_none
        return original(owner, set_to_none)

    def _make_distribution(
        self, original: Callable[..., Any], distribution: Any, *arguments: Any, **options: Any
    ) -> None:
        original(distribution, *arguments, **options)
        self._num_distributions += bool(getattr(distribution, "_validate_args", False))

    def _make_ddp(self, original: Callable[..., Any], ddp: Any, *arguments: Any, **options: Any) -> None:
        original(ddp, *arguments, **options)
        given = inspect.signature(original).bind(ddp, *arguments, **options).arguments
        cap = given.get("bucket_cap_mb") or DEFAULT_BUCKET_CAP_MB
        view, is_static = given.get("gradient_as_bucket_view", False), given.get("static_graph", False)
        self._ddp.append(DDPFacts(float(cap), bool(view), bool(is_static)))

    def _record_optimizer(self, optimizer: Any, *_: object) -> None:
        if id(optimizer) in self._optimizers:
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._optimizers[id(optimizer)] = OptimizerFacts(
            type(optimizer).__name__,
            len(parameters),
            "fused" in optimizer.defaults,
            "foreach" in optimizer.defaults,
            optimizer.defaults.get("fused"),
            optimizer.defaults.get("foreach"),
            any(parameter.device.type != "cpu" for parameter in parameters),
        )
