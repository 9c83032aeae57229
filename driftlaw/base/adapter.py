"""Adapter: the hooks that a method writes, and the calls that users make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from driftlaw.base.description import describe_adapter
from driftlaw.base.group import join_group
from driftlaw.base.inputs import InputConverter
from driftlaw.base.model_copy import CLASSIFICATION_ONLY, check_head, copy_model, unwrap_model
from driftlaw.base.outputs import like_model_output, model_keywords, split_keywords, to_given_dtype
from driftlaw.base.registry import register
from driftlaw.base.safe_steps import SafeSteps
from driftlaw.base.small_batches import make_window
from driftlaw.base.state import snapshot
from driftlaw.base.types import StepOutput
from driftlaw.errors import UsageError
from driftlaw.execution import ExecutionSettings, Executor, Plan, TwoPassResult
from driftlaw.execution.compile import run_eagerly
from driftlaw.execution.locks import ForkSafeRLock
from driftlaw.execution.split_pass import make_splittable
from driftlaw.execution.two_pass import Augment, Loss, Probe, two_pass
from driftlaw.models.check_weights import check_weights
from driftlaw.settings import Settings, check_seed


class Adapter(SafeSteps, ABC):
    """A model that is updated on the images it predicts: ``adapter(images)`` returns logits and takes one step.

    A method writes ``Config``, ``configure``, ``setup``, ``draw`` and ``update``. What it keeps between steps is
    registered state: parameters, buffers, sub-modules, optimizers and CPU generators held as attributes. Reset, save
    and load follow from that and need no code in a method.

    Args:
        model: maps images (n, c, h, w) in [0, 1] to logits, or to a tuple, dict or object that holds them. It is copied
            and never changed. Wrappers of DataParallel and torch.compile are removed from the copy.
        config: the method's settings; None: defaults.
        seed: seed of all random numbers of the method.
        train_data: the training data, for methods that declare ``needs_train_data``.
        group: process group whose ranks share every batch; see ``driftlaw.adapt``. A pickled adapter has none.

    Class attributes:
        title: name in tables.
        paper: title and venue of the paper.
        adapts: what is updated, in words; "nothing" if no parameter is trained.
        needs_train_data: whether the method needs the training data.
        updates_running_stats: whether a step changes the running statistics of BatchNorm layers.
        predicts_before_update: whether the returned logits are from before the update.
        classification_only: why the method refuses logits per pixel, to follow "but" in a message; else empty.
        forward_cost, backward_cost: FLOPs of a step in forward passes.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    needs_train_data: ClassVar[bool] = False
    adapts: ClassVar[str] = "nothing"
    updates_running_stats: ClassVar[bool] = False
    predicts_before_update: ClassVar[bool] = True
    classification_only: ClassVar[str] = ""
    forward_cost: ClassVar[float] = 1
    backward_cost: ClassVar[float] = 0
    independent_passes = True
    """Whether the two passes of ``two_pass`` may run at the same time."""

    class Config(ExecutionSettings):
        """No settings but those of execution."""

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls.name = name
            cls.title = vars(cls).get("title", name)
            register(name, cls)

    def __init__(
        self,
        model: nn.Module,
        config: Settings | None = None,
        *,
        seed: int = 0,
        train_data: Any = None,
        group: Any = None,
    ) -> None:
        super().__init__()
        given = unwrap_model(model)
        if isinstance(given, Adapter):
            raise UsageError(
                f"The model is already an adapter (method '{given.name}'). Pass its .model, or the model that it was "
                "made from."
            )
        check_weights(given)
        if self.needs_train_data and train_data is None:
            raise UsageError(
                f"{self.name} needs the training data. Pass it as train_data=, or use a source-free method."
            )
        chosen = config if config is not None else self.Config()
        missing = {name for name in type(chosen).model_fields if getattr(chosen, name) is None}
        fitting = self.default_settings(given) if missing else {}
        self.config: Any = chosen.model_copy(update={name: fitting[name] for name in missing & fitting.keys()})
        self.seed = check_seed(seed)
        self.ranks = None if group is None else join_group(group, self, given, train_data)
        self.generator = torch.Generator()
        self.generator.manual_seed(self.seed)
        self.steps = 0
        self._host_cache: dict[str, Any] = {}  # values read back from the state; emptied when the state is replaced
        self._reductions: dict[str, str | None] = {}
        self._warned: set[str] = set()
        self._lock = ForkSafeRLock()
        self.inputs = InputConverter(self.config)
        self.inputs.wait_for_values = self.ranks is not None
        self._executor = Executor(self.config, split=self.ranks is not None)
        with torch.inference_mode(False):  # tensors created in inference mode cannot be trained
            self.model = self._executor.convert(copy_model(given, self.inputs.mean_std))
            if self.ranks is not None:
                make_splittable(self.model)
            vars(self.model)[CLASSIFICATION_ONLY] = self.classification_only
            check_head(self.model, train_data)
            self.start_monitoring()
            self.configure(self.model)
            self.trainable_names = [name for name, value in self.model.named_parameters() if value.requires_grad]
            self.setup(train_data)
            if self.backward_cost and not any(value.requires_grad for value in self.parameters()):
                raise UsageError(f"{self.name} found no parameter to train in this model. Use 'source' or 'norm'.")
            self.window = make_window(self.config, self)
            self._count_steps_on_device()
            self.start_guard()
            self._initial_state = snapshot(self)
        self._executor.compile(self.model)
        if self.guard is not None and self.guard.folder is not None:
            self.guard.folder.load_into(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy or a pickle, which contains no compiled code."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._executor.compile(self.model)

    __repr__ = describe_adapter

    # --- hooks that a method writes ------------------------------------------------------------------------------

    def configure(self, model: nn.Module) -> None:
        """Select the trainable parameters and the statistics that BatchNorm layers use.

        Args:
            model: the adapter's copy of the model, in eval mode, with every parameter frozen.
        """

    def default_settings(self, model: nn.Module) -> dict[str, Any]:
        """Return values that fit a model, for settings that are None. They are stored in ``config``.

        Args:
            model: the caller's model, before it is copied.
        """
        return {}

    def setup(self, train_data: Any) -> None:
        """Create the state that is kept between steps: buffers, modules, optimizers."""

    def draw(self, images: Tensor) -> Plan:
        """Draw the random numbers and make the decisions of one step; runs on the host."""
        return Plan()

    @abstractmethod
    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict a batch and update the model; runs on the device, with gradients enabled.

        It draws no random numbers, reads no value back to the host, and changes registered state in place only. It may
        read values back if its plan has ``host`` values.
        """

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return logits without changing anything; used by ``predict``."""
        logits: Tensor = self.model(images)
        return logits

    def step_kind(self) -> str:
        """Return a word for the next step, if steps of a method differ in cost."""
        return "step"

    def diagnostic_labels(self) -> dict[str, list[str]]:
        """Return the names of the entries of each diagnostic that is a vector."""
        return {}

    # --- calls for methods ---------------------------------------------------------------------------------------

    def two_pass(
        self,
        parameters: Sequence[Tensor],
        images: Tensor,
        augment: Augment | None,
        loss: Loss,
        probe: Probe | None = None,
    ) -> TwoPassResult:
        """Run the model on a batch and on its augmentation; see ``driftlaw.execution.two_pass``."""
        engine = self._executor.choose_engine(self.model, self.trainable_names, images, self.independent_passes)
        return two_pass(self.model, parameters, images, augment, loss, probe, engine)

    def dense_augmentation(self, images: Tensor) -> str | None:
        """Return the setting ``dense_augmentation`` if logits are of several pixels per image, else None.

        The first call makes a forward pass of the source model to find out.
        """
        return str(self.config.dense_augmentation) if self.is_dense(images) else None

    def inference(self, network: nn.Module, images: Tensor) -> Tensor:
        """Return the logits of a network without gradients; ``draw`` may use it."""
        return self._executor.inference(network, images)

    # --- calls for users -----------------------------------------------------------------------------------------

    @run_eagerly
    def forward(self, images: Any = None, **keywords: Any) -> Any:
        """Predict one batch and update the model on it; returns what the model returns, with detached logits.

        Other tensors in an output that is not a plain tensor, such as hidden states, are None. Keyword arguments are
        passed to the model, except ``labels``; one of them may be the images, as in ``adapter(pixel_values=images)``.
        """
        if keywords:
            images, keywords = split_keywords(self.model, images, keywords)
            if keywords and self.ranks is not None:
                raise UsageError(
                    f"With group= the model receives images only, found {', '.join(keywords)}. Wrap the model in a "
                    "module that has these arguments."
                )
        with self._lock, model_keywords(self, keywords):
            return like_model_output(self, images, self.step(images).logits)

    @run_eagerly
    def step(self, images: Tensor, *, whole: bool = False) -> StepOutput:
        """Predict one batch, update the model on it, and return logits and diagnostics.

        A batch with fewer than ``minimum_batch`` images is predicted without an update and does not count as a step.
        With ``statistics="auto"`` small batches are collected, and the model is updated when they are enough.

        Args:
            images: the batch. With a group, the part of this rank, which may be empty: (0, c, h, w).
            whole: with a group, every rank passes the same, whole batch, and receives the logits of all its images.
        """
        with self._lock:
            batch, own = self._gather(images, whole)
            if self.guard is not None:
                output = self.guarded_step(batch)
            else:
                output = self.safe_step(self.inputs.to_unit(batch, self.model))
            return output if self.ranks is None else StepOutput(output.logits[own], output.diagnostics)

    @run_eagerly
    def predict(self, images: Tensor, *, whole: bool = False) -> Tensor:
        """Return logits (n, classes), or (n, classes, h, w), without updating the model; arguments as in ``step``."""
        with self._lock, torch.no_grad():
            batch, own = self._gather(images, whole)
            batch = self.inputs.to_unit(batch, self.model)
            logits: Tensor = self._run(self._predict_small if self._is_small(batch) else self._predict, batch)
            return to_given_dtype(logits[-len(batch) :][own], self.model)

    def _gather(self, images: Any, whole: bool) -> tuple[Any, slice]:
        """Return the whole batch, and which of its images are this rank's."""
        if self.ranks is None:
            return images, slice(None)
        return self.ranks.gather_batch(images, self.steps, whole=whole)

    def train(self, mode: bool = True) -> Adapter:
        """Do nothing: an adapter sets the modes of its layers itself, so that ``.eval()`` around it is harmless."""
        return self

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Context manager in which steps run without CUDA graphs, compilation and threads, visible to counters.

        Steps call no callbacks in it and are not measured. With a group, this process computes alone in it.
        """
        ranks, self.ranks = self.ranks, None
        try:
            with self._executor.eager(self.model), self.unmonitored():
                yield
        finally:
            self.ranks = ranks

    def execution_info(self) -> dict[str, Any]:
        """Return how steps run on the current device, as plain data for a record."""
        return self._executor.info(self.model)
