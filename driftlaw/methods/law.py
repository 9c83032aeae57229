"""LAW: layer-wise auto-weighting by Fisher information (Park et al., WACV 2024)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from driftlaw.base import Adapter, BatchStatsSettings, Plan, StepOutput, open_lanes, twin
from driftlaw.components.augment import AugmentParams, augment
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.fisher import mean_squares, per_sample_fisher, score, tensor_sizes
from driftlaw.components.layer_rates import (
    ParameterGroups,
    adam_step,
    exponential_min_max,
    first_adam_step,
    first_adam_step_of_summands,
    sum_gradients,
)
from driftlaw.components.losses import entropy, soft_cross_entropy
from driftlaw.components.parameters import layer_parameters, require_grad_
from driftlaw.errors import UsageError
from driftlaw.execution.pass_weights import Autocast, Pass, Watch, autocast_of, passes_apart

Circumstances = tuple[torch.Size, Autocast]
"""What a network's way with its weights may hang on: the shape of the images, and autocast."""
Parts = list[list[Tensor | None]]
"""The loss's gradients over the tensors that move, a list a pass, to be added up."""
Passed = tuple[Tensor, Parts, Tensor | None]
"""What the passes of a step give: the answer, the loss's gradients, and the Fisher information where it is scored."""

SLACK = 1.25  # a tensor that moves is taken for this much sharper than it is, so that neighbours do not change places


class Law(Adapter, name="law"):
    """Minimises entropy plus consistency under augmentation; convolutions and norm layers move, each at its own rate.

    A batch x is answered, y = f(x). The gradient of y's likelihood at its own arg-max labels, squared, is added to the
    Fisher information of every parameter tensor. Tensors to which the likelihood is sharp learn at the full rate, flat
    ones stand still: the rate of a tensor is η·w̄, where w̄ is the square root of its mean Fisher information, scaled to
    [0, 1] over all tensors and raised to τ. Then one step down

        L = entropy(y) + λ · cross-entropy(y → f(augmented x)).

    The answer is y, from before the step. The linear head never moves unless ``layers`` names it.

    **Departs from the paper:** where the paper and its released code part, the defaults follow the code, which made the
    published numbers: a weight a tensor (``grouping``), the mean in place of the trace (``reduction``), the squared
    gradient of the batch mean (``fisher``), no moment outlives a batch (``moments``), gradients flow through the
    target of the consistency loss (``detach_target``). The first release also squared a stale gradient; that is off
    unless asked for (``compat``).
    """

    title = "LAW"
    paper = "Layer-wise auto-weighting for non-stationary test-time adaptation, WACV 2024"
    adapts = "convolutions and norm layers, each tensor at its own rate"
    forward_cost, backward_cost = 2, 6

    class Config(BatchStatsSettings):
        """Settings of LAW; the defaults are the paper's for CIFAR-10-C."""

        unsaid: ClassVar[frozenset[str]] = BatchStatsSettings.unsaid | {
            "layers",
            "fisher_every",
            "fisher_settling",
            "skip_share",
            "augment_every",
            "recompute",
            "more_facts",
        }

        learning_rate: PositiveFloat = 1e-3
        """η, the rate of the sharpest tensor; 1e-3, 5e-5, 2e-4 for CIFAR-10-C, CIFAR-100-C, ImageNet-C."""
        tau: NonNegativeFloat = 1.0
        """τ, the exponent of the min-max scaler; 1.0, 0.6, 1.0."""
        consistency_weight: NonNegativeFloat = 0.1
        """λ, the weight of the consistency loss, 0.01 × the number of classes; 0.1, 1, 10."""
        grouping: Literal["tensor", "module", "block"] = "tensor"
        """What shares a weight: a parameter ``tensor``, the tensors of a ``module``, or of a ``block``."""
        reduction: Literal["mean", "trace"] = "mean"
        """How the Fisher diagonal of a group becomes a number; with ``trace`` large convolutions take over."""
        fisher: Literal["batch", "per_sample"] = "batch"
        """The square of the ``batch``-mean gradient, or the mean of ``per_sample`` squares (statistics held fixed)."""
        moments: Literal["fresh", "kept"] = "fresh"
        """Adam's moments: ``fresh`` every batch, so that a step is about η·w̄·sign(g), or ``kept``."""
        compat: Literal["none", "released_2024"] = "none"
        """``released_2024`` adds the previous step's gradient under the score, as the first release did."""
        detach_target: bool = False
        """Whether the answer is a constant as the target of the consistency loss."""
        fisher_decay: float = Field(default=1.0, ge=0.0, le=1.0)
        """γ, what is kept of the Fisher information from batch to batch (Appendix B.1)."""
        layers: tuple[Literal["conv", "norm", "linear", "head"], ...] = Field(default=("conv", "norm"), min_length=1)
        """What learns: ``conv``, ``norm`` and ``linear`` layers; the last linear one, the ``head``, only by name."""
        fisher_every: PositiveInt = 1
        """Every how many batches the Fisher information is added to, once it has settled; 1 is the paper's step."""
        fisher_settling: PositiveInt = 20
        """How many first batches are all scored, whatever ``fisher_every`` says: the weights settle in them."""
        skip_share: float = Field(default=0.0, ge=0.0, lt=1.0)
        """The flattest tensors, as many as hold this share of all parameters, get no gradient on unscored batches."""
        augment_every: PositiveInt = 1
        """On unscored batches, every how many the augmented pass is made; the others go down the entropy alone."""
        recompute: bool = False
        """Whether the augmented pass is made twice, so that one graph lives at a time: less memory, a ninth slower."""
        more_facts: bool = False
        """Whether a step also offers ``layer_sharpness``, the weights w before they are scaled (Eq. 5)."""

    def configure(self, model: nn.Module) -> None:
        """Turn on the gradients of the layers that learn, and batch statistics."""
        chosen = layer_parameters(model, self.config.layers)
        if not chosen:
            raise UsageError(
                f"law was to learn {' and '.join(self.config.layers)}, and this model has no such layers: by default "
                "they are Conv2d and norm layers; take others in with layers = [«linear», «head»], or take source"
            )
        require_grad_(chosen)
        use_batch_stats(model, self.config.share_of_source)

    def setup(self, train_data: Any) -> None:
        """Make the Fisher sums, one number a tensor, and whatever else the settings keep between steps."""
        self._check_settings()
        self.trainable = [name for name, value in self.model.named_parameters() if value.requires_grad]
        entries = tensor_sizes(self._tensors())
        self.register_buffer("fisher", torch.zeros_like(entries))
        self.register_buffer("moving", torch.ones_like(entries, dtype=torch.bool))  # on batches that are not scored
        self.groups = ParameterGroups(self.trainable, entries, self.config.grouping)
        self._stand_ins: dict[Circumstances, dict[str, bool]] = {}  # what was seen so far
        if self.config.moments == "kept":
            self._keep("first")
            self._keep("second")
        if self.config.compat == "released_2024":
            self._keep("stale")

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Answer the batch, weigh the tensors, take one step."""
        kind = self.step_kind()
        draw = None if kind == "entropy" else AugmentParams.from_generator(self.generator)
        with self._all_moving() if kind == "scored" else self._standing_still() as moving:
            if draw is not None and self._has_lanes(images):
                return self._descend(*self._passes_in_lanes(images, draw, scored=kind == "scored"))
            given = (images,) if draw is None else (images, augment(images, draw))
            step = self._scored_step if kind == "scored" else self._unscored_step
            if self.config.moments == "kept":  # its steps are counted on the host
                return step(*given)
            return self.replayed(step, *given, variant=moving)

    def step_kind(self) -> str:
        """Return ``scored`` where the next batch adds to the Fisher information, else ``unscored``, or ``entropy``."""
        since = self.steps - self.config.fisher_settling
        since_scored = since % self.config.fisher_every if since >= 0 else 0
        if not since_scored:
            return "scored"
        return "entropy" if since_scored % self.config.augment_every else "unscored"

    def _scored_step(self, images: Tensor, augmented: Tensor) -> StepOutput:
        return self._descend(*self._passes(images, augmented, scored=True))

    def _unscored_step(self, images: Tensor, augmented: Tensor | None = None) -> StepOutput:
        """Take a step with the weights as they are; tensors that stand still have no gradient."""
        return self._descend(*self._passes(images, augmented, scored=False))

    def _passes(self, images: Tensor, augmented: Tensor | None, *, scored: bool) -> Passed:
        """Return the answer, the loss's gradients over the tensors that move, and the Fisher information if scored."""
        (network, own), (network_beside, beside) = self._networks(images)
        answer = None if augmented is None else self._begin_answer(network_beside, augmented)
        logits = network(images)
        if isinstance(network, Watch):
            self._stand_ins[_circumstances(images)] = network.stand_ins(self.trainable)
        information = self._information(images, logits, own) if scored else None
        return logits.detach(), self._gradients(logits, answer, _that_move(own), _that_move(beside)), information

    def _networks(self, images: Tensor) -> list[Pass]:
        """Return the network for the pass of a batch and for that of the augmented one, with what learns in each."""
        if self.config.fisher != "batch" or not self._lies_on_gpu() or not self.takes_other_weights():
            return [(self.model, list(self._tensors()))] * 2
        # Small work, of which a GPU has too much. Which weights it is, the first pass of a shape shows.
        seen = self._stand_ins.get(_circumstances(images))
        counted = torch._C._len_torch_dispatch_stack() > 0
        captured = images.is_cuda and torch.cuda.is_current_stream_capturing()
        if seen is None and not counted and not captured:
            tensors = list(self._tensors())
            return [(Watch(self.model, images), tensors), (self.model._call_impl, tensors)]
        return passes_apart(self.model, self.trainable, seen or {}, 2)

    def _has_lanes(self, images: Tensor) -> bool:
        """Tell whether passes run side by side; with per-sample scores norm layers change while they are taken."""
        return self.config.fisher == "batch" and not self.config.recompute and self.has_lanes(images)

    def _passes_in_lanes(self, images: Tensor, draw: AugmentParams, *, scored: bool) -> Passed:
        """Return what ``_passes`` does, the passes of the augmented batch made beside those of the batch.

        The loss is cut at both answers: its slopes there are known without a pass backwards, and the gradients that
        they become on either side add up to the loss's.
        """
        tensors, model_beside = self._tensors(), twin(self.model)
        parameters = _that_move(tensors)
        with open_lanes(3 if self.has_third_lane() else 2) as (lane, lane_beside, *third):
            logits = lane.do(self.model, images)
            information = lane.do(self._information, images, logits, tensors) if scored else None
            augmented = lane_beside.do(augment, images, draw)
            if self.starts_compiling(images):  # in one lane is enough
                augmented = lane_beside.do(_after, augmented, information or logits)
            answer = lane_beside.do(model_beside, augmented)
            slopes = lane_beside.do(self._slopes, logits, answer)
            beside = lane_beside.do(_pull_back, answer, slopes, 1, parameters)
            free = third if scored else [lane]
            own = free[0].do(_pull_back, logits, slopes, 0, parameters, scored) if free else None
        # Without a third lane one pass of a scored step is left, which all cores share.
        gradients = own.result() if own else _pull_back(logits.result(), slopes.result(), 0, parameters)
        parts = [gradients, beside.result()]
        return logits.result().detach(), parts, information.result() if information else None

    def _descend(self, logits: Tensor, parts: Parts, information: Tensor | None) -> StepOutput:
        """Weigh the tensors with what the batch says of them, and take one step with those that move."""
        if information is not None:
            self.fisher.mul_(self.config.fisher_decay).add_(information)  # Eq. 4
        weights, facts = self._weighed()
        rates = self.config.learning_rate * weights[self.groups.group_index]
        moves = [value.requires_grad for value in self._tensors()]
        if not all(moves):
            rates = torch.stack([rate for rate, one in zip(rates, moves, strict=True) if one])
        self._move(parts, rates)  # Eq. 10
        return StepOutput(logits, facts)

    def _weighed(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weight w̄ of every group, and the facts that tell of it."""
        sharpness = self.groups.importance(self.fisher, self.config.reduction)  # Eq. 5
        weights = exponential_min_max(sharpness, self.config.tau)  # Eq. 7
        unscaled = {"layer_sharpness": sharpness} if self.config.more_facts else {}
        return weights, {"layer_weights": weights, **unscaled}

    @contextmanager
    def _all_moving(self) -> Iterator[None]:
        """Inside, every tensor that learns has a gradient; which are worth one is asked anew afterwards."""
        self.known.pop("moving", None)
        yield

    @contextmanager
    def _standing_still(self) -> Iterator[tuple[bool, ...]]:
        """Inside, tensors whose weight is not worth a gradient have none; yields which ones move.

        Which ones is asked once after each scored batch, as a captured step is made anew for every change.
        """
        if "moving" not in self.known:
            weights = self._weighed()[0][self.groups.group_index]
            order = torch.where(self.moving, weights * SLACK, weights).argsort(stable=True)
            sizes = self.groups.sizes.double()[order]
            self.moving[order] = sizes.cumsum(0) > self.config.skip_share * sizes.sum()
            self.known["moving"] = tuple(self.moving.tolist())
        try:
            for value, moves in zip(self._tensors(), self.known["moving"], strict=True):
                value.requires_grad_(moves)
            yield self.known["moving"]
        finally:
            require_grad_(self._tensors())

    def diagnostic_labels(self) -> dict[str, list[str]]:
        """Name the groups that ``layer_weights``, and ``layer_sharpness``, speak of."""
        vectors = ["layer_weights", *(["layer_sharpness"] if self.config.more_facts else [])]
        return dict.fromkeys(vectors, self.groups.names)

    def _tensors(self) -> list[nn.Parameter]:
        return [self.model.get_parameter(name) for name in self.trainable]

    def _check_settings(self) -> None:
        settings = self.config
        if settings.compat == "released_2024" and settings.fisher == "per_sample":
            raise UsageError("compat = «released_2024» squares a batch gradient: it goes with fisher = «batch» alone")
        if settings.fisher_every > 1 and (settings.moments == "kept" or settings.compat == "released_2024"):
            raise UsageError(
                "fisher_every > 1 leaves gradients out that moments = «kept» and compat = «released_2024» hang on: "
                "take moments = «fresh» and compat = «none»"
            )
        idle = [name for name, off in (("skip_share", 0), ("augment_every", 1)) if getattr(settings, name) != off]
        if idle and settings.fisher_every == 1:
            raise UsageError(
                f"{' and '.join(idle)}: acts on batches that are not scored, and goes with fisher_every of 2 or more"
            )

    def _information(self, images: Tensor, logits: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """Return the Fisher information of this batch, a number for each of the tensors (Eq. 2 and 3)."""
        if self.config.fisher == "per_sample":
            return per_sample_fisher(self.model, dict(zip(self.trainable, self._tensors(), strict=True)), images)
        gradients = score(logits, tensors)
        if self.config.compat == "released_2024":
            gradients = torch._foreach_add(gradients, self._kept("stale"))
        return mean_squares(gradients, self.groups.sizes)

    def _loss(self, logits: Tensor, answer: Tensor) -> Tensor:
        target = logits.detach() if self.config.detach_target else logits
        consistency = soft_cross_entropy(target, answer)  # Eq. 8
        return entropy(logits) + self.config.consistency_weight * consistency  # Eq. 9

    def _begin_answer(self, network: Callable[[Tensor], Tensor], augmented: Tensor) -> Callable[[], Tensor]:
        """Begin the pass of the augmented batch; with ``recompute`` nothing is done before the answer is asked for."""
        return partial(network, augmented) if self.config.recompute else self.beside(network, augmented)

    def _gradients(
        self, logits: Tensor, answer: Callable[[], Tensor] | None, own: list[Tensor], beside: list[Tensor]
    ) -> Parts:
        """Return the loss's gradients over what moves in either pass; the graph of the logits is used up.

        Args:
            logits: the answer to the batch.
            answer: gives the answer to the augmented batch; None where the loss is the entropy alone.
            own: what moves in the pass of the batch.
            beside: the same in the pass of the augmented batch; what is in both has all of its gradient in the first.
        """
        if answer is None:
            return [list(torch.autograd.grad(entropy(logits), own, materialize_grads=True))]
        if self.config.recompute:
            with torch.no_grad():
                answered = answer()
            slopes = self._slopes(logits, answered)
            return [_pull_back(logits, slopes, 0, own), _pull_back(answer(), slopes, 1, beside)]
        apart = [value for value, other in zip(beside, own, strict=True) if value is not other]
        loss = self._loss(logits, answer())
        found = iter(torch.autograd.grad(loss, [*own, *apart], materialize_grads=True))
        first: list[Tensor | None] = [next(found) for _ in own]
        if not apart:
            return [first]
        return [first, [None if value is other else next(found) for value, other in zip(beside, own, strict=True)]]

    def _slopes(self, logits: Tensor, answer: Tensor) -> tuple[Tensor, ...]:
        """Return the loss's gradient over both answers, as if no network stood behind them."""
        ends = [logits.detach().requires_grad_(), answer.detach().requires_grad_()]
        return torch.autograd.grad(self._loss(*ends), ends)

    def _move(self, parts: Parts, rates: Tensor) -> None:
        parameters = _that_move(self._tensors())
        if self.config.moments == "fresh" and self.config.compat == "none":
            # Steps of other kinds would be compiled for each of them.
            usual = len(parameters) == len(self.trainable) and len(parts) == 2
            step = self.fused(first_adam_step_of_summands) if usual else first_adam_step_of_summands
            step(parameters, parts, rates)
            return
        gradients = sum_gradients(parameters, parts)
        if self.config.moments == "fresh":
            first_adam_step(parameters, gradients, rates)
        else:
            first, second = self._kept("first"), self._kept("second")
            adam_step(parameters, gradients, rates, first=first, second=second, step=self.steps + 1)
        if self.config.compat == "released_2024":
            torch._foreach_copy_(self._kept("stale"), gradients)

    def _keep(self, name: str) -> None:
        for number, value in enumerate(self._tensors()):
            self.register_buffer(f"{name}_{number}", torch.zeros_like(value))

    def _kept(self, name: str) -> list[Tensor]:
        return [self.get_buffer(f"{name}_{number}") for number in range(len(self.fisher))]


def _circumstances(images: Tensor) -> Circumstances:
    return images.shape, autocast_of(images.device.type)


def _that_move(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [value for value in tensors if value.requires_grad]


def _after(value: Tensor, awaited: Tensor) -> Tensor:
    """Return a value that is not handed on before something else is there too."""
    return value


def _pull_back(
    answer: Tensor, slopes: Sequence[Tensor], number: int, parameters: Sequence[Tensor], keep: bool = False
) -> list[Tensor | None]:
    """Return over the parameters what the slope of that number is over an answer, whose graph is used up or kept."""
    return list(torch.autograd.grad(answer, parameters, slopes[number], retain_graph=keep, materialize_grads=True))
