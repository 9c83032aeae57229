"""Executor: runs the steps of one adapter with the engine, precision and memory format that fit model and device."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from driftlaw.errors import warn_user
from driftlaw.execution.compile import WEIGHTS_AS_INPUTS, compile_context, compile_network, fusing
from driftlaw.execution.cuda import CudaEngine
from driftlaw.execution.graphs import GraphCache
from driftlaw.execution.layout import keep_group_norm_contiguous, use_channels_last
from driftlaw.execution.plan import Plan
from driftlaw.execution.precision import autocast_bf16, use_bf16
from driftlaw.execution.threads import ThreadEngine, can_use_threads
from driftlaw.execution.two_pass import Engine, recompute, sequential

VIEW_ERRORS = ("view size is not compatible", "Cannot view a tensor")  # of Tensor.view, and of the compiler


class Executor:
    """Runs steps. It changes neither what a step computes nor the state of the method.

    Args:
        settings: ``ExecutionSettings``, or settings that lack some of them; ``recompute`` is read as well.
        split: whether ranks share the passes. Their order must be the same on all ranks, so steps run without CUDA
            graphs, compilation and parallel passes.

    Attributes:
        engine: an engine that replaces the automatic choice; None: choose by device and settings.
        compiled: whether the model is compiled.
        channels_last: whether the model uses the channels-last memory format.
        graphs: the captured steps.
    """

    def __init__(self, settings: Any, *, split: bool = False) -> None:
        self.precision: str = getattr(settings, "precision", "float32")
        self.memory_format: str = getattr(settings, "channels_last", "auto")
        self.overlap: bool = getattr(settings, "overlap", True)
        self.recompute: bool = getattr(settings, "recompute", False)
        self.compile_requested: bool = getattr(settings, "compiled", False)
        self.graphs = GraphCache(getattr(settings, "capture", "off"))
        self.engine: Engine | None = None
        self.compiled = self.channels_last = False
        self._format_confirmed = False
        self._compiled_shapes: set[torch.Size] = set()
        self._cuda: CudaEngine | None = None
        if split:
            if self.compile_requested or self.graphs.mode == "on":
                warn_user("Steps of several ranks run without CUDA graphs and compilation, and are slower for it.")
            self.graphs.mode, self.overlap, self.compile_requested = "off", False, False
            self.engine = recompute if self.recompute else sequential

    # --- model ---------------------------------------------------------------------------------------------------

    def convert(self, model: nn.Module) -> nn.Module:
        """Return the model in the memory format that the settings ask for."""
        keep_group_norm_contiguous(model)
        self.channels_last = use_channels_last(self.memory_format, model)
        self._format_confirmed = not self.channels_last
        return model.to(memory_format=torch.channels_last) if self.channels_last else model  # type: ignore[call-overload]

    def compile(self, model: nn.Module) -> None:
        """Compile the model if the settings ask for it."""
        self.compiled = self.compile_requested and compile_network(model)
        self._compiled_shapes = set()

    def model_moved(self, model: nn.Module) -> None:
        """Forget what depends on the tensors of the model, which were replaced or moved to another device."""
        self.graphs.clear()
        if self.compiled or _on_gpu(model):  # on a CPU without a compiler the warning was issued already
            self.compile(model)

    def info(self, model: nn.Module) -> dict[str, Any]:
        """Return how steps run on the model's device, as plain data for a record."""
        weight = next(model.parameters(), torch.empty(0))
        bf16 = use_bf16(self.precision, weight.device, weight.dtype)
        return {
            "precision": "bf16" if bf16 else str(weight.dtype).removeprefix("torch."),
            "channels_last": self.channels_last,
            "capture": self.graphs.mode != "off" and weight.is_cuda,
            "compiled": self.compiled,
        }

    # --- steps ---------------------------------------------------------------------------------------------------

    @contextmanager
    def context(self, images: Tensor, dtype: torch.dtype) -> Iterator[None]:
        """Context manager for a step or a prediction: autocast for a model of this dtype, settings of the compiler."""
        bf16 = use_bf16(self.precision, images.device, dtype)
        with autocast_bf16(bf16, images.device), compile_context(self.compiled):
            yield

    def run(
        self, call: Callable[[Tensor], Any], images: Tensor, owner: nn.Module, generators: Sequence[torch.Generator]
    ) -> Any:
        """Return ``call(images)``. If the model turns out not to compile or to need another format, it is called again.

        Args:
            call: a step or a prediction.
            images: the batch.
            owner: the adapter; its memory format is changed if the model needs contiguous tensors.
            generators: random generators that are set back if the call fails.
        """
        states = [generator.get_state() for generator in generators]

        def attempt(images: Tensor) -> Any:
            try:
                return call(images)
            except BaseException:
                for generator, state in zip(generators, states, strict=True):
                    generator.set_state(state)
                raise

        model: Any = owner.model
        if not self.compiled:
            return self._run_in_format(attempt, images, owner)
        if torch._C._len_torch_dispatch_stack() > 0:  # under a FLOP counter torch would stop compiling for good
            with self.eager(model):
                return self._run_in_format(attempt, images, owner)
        from torch._dynamo.exc import TorchDynamoException

        try:
            return self._run_in_format(attempt, images, owner)
        except TorchDynamoException as error:
            reason = " ".join(str(error).split("\n")[:2])
        code = model._compiled_call_impl
        self.compiled, model._compiled_call_impl = False, None
        try:
            result = self._run_in_format(attempt, images, owner)
        except Exception:  # the images are wrong, not the model
            self.compiled, model._compiled_call_impl = True, code
            raise
        warn_user(f"The model cannot be compiled ({reason}). Steps run eagerly. Set compiled=False to silence this.")
        return result

    def _run_in_format(self, call: Callable[[Tensor], Any], images: Tensor, owner: nn.Module) -> Any:
        if self._format_confirmed:
            return call(images.contiguous(memory_format=torch.channels_last) if self.channels_last else images)
        try:
            result = call(images.contiguous(memory_format=torch.channels_last))
        except RuntimeError as error:
            if self.memory_format == "on" or not any(text in str(error) for text in VIEW_ERRORS):
                raise
            owner.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
            self.channels_last = False
            result = call(images.contiguous())
        self._format_confirmed = True
        return result

    def step(self, update: Callable[[Tensor, Plan], Any], images: Tensor, plan: Plan, model: nn.Module) -> Any:
        """Return ``update(images, plan)``, captured as a CUDA graph if the plan has no host values or ``align``."""
        whole = plan.active is None or all(plan.active)
        fuse = self.compiled and whole and plan.augment is not None and _on_gpu(model)
        with fusing(fuse):
            if self.graphs.mode == "off" or not images.is_cuda or (plan.host, plan.align) != (None, None):
                return update(images, plan)
            key = plan.kind, plan.active
            if plan.augment is None:
                return self.graphs.run(key, lambda images: update(images, plan), images)

            def captured(images: Tensor, augmented: Tensor) -> Any:
                return update(images, replace(plan, augment=lambda _: augmented))

            return self.graphs.run(key, captured, images, plan.augment(images))

    def inference(self, network: nn.Module, images: Tensor) -> Tensor:
        """Return the logits of a network without gradients, captured as a CUDA graph of its own."""
        with torch.no_grad():
            logits: Tensor = self.graphs.run(("inference", id(network)), network, images)
            return logits

    def choose_engine(self, network: nn.Module, names: Sequence[str], images: Tensor, independent: bool) -> Engine:
        """Return the engine for the two passes of a step.

        Args:
            network: the network.
            names: names of all its trainable parameters.
            images: the batch.
            independent: whether the two passes may run at the same time.
        """
        if self.engine is not None:
            return self.engine
        if _on_gpu(network):
            self._cuda = self._cuda or CudaEngine(names, overlap=self.overlap, recompute=self.recompute)
            self._cuda.separate_weights = independent and (WEIGHTS_AS_INPUTS or not self.compiled)
            return self._cuda
        if self.recompute:
            return recompute
        if not (independent and self.uses_threads(images)):
            return sequential
        first_alone = self.compiled and images.shape not in self._compiled_shapes
        self._compiled_shapes.add(images.shape)
        # Three passes share two cores only if they are compiled and have one thread each.
        return ThreadEngine(3 if self.compiled and torch.get_num_threads() == 2 else 2, first_alone=first_alone)

    def uses_threads(self, images: Tensor) -> bool:
        """Return True if independent passes of a step on these images run in threads."""
        return self.overlap and images.device.type == "cpu" and can_use_threads()

    @contextmanager
    def eager(self, model: nn.Module) -> Iterator[None]:
        """Context manager in which steps run without graphs, compilation and threads, visible to counters."""
        code: Any = model._compiled_call_impl
        previous = self.graphs.mode, self.overlap, self.compiled
        self.graphs.mode, self.overlap, self.compiled, model._compiled_call_impl = "off", False, False, None
        try:
            yield
        finally:
            self.graphs.mode, self.overlap, self.compiled = previous
            model._compiled_call_impl = code


def _on_gpu(model: nn.Module) -> bool:
    return any(value.is_cuda for value in model.parameters())
