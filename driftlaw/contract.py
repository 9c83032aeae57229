"""The nouns that every room speaks: Domain, Batch, Stream, Output and Adapter."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from driftlaw.errors import UsageError, collected, unknown
from driftlaw.settings import Settings, parse


@dataclass(frozen=True)
class Domain:
    """Where a batch comes from: the corruption's name, its severity (0: clean) and the round of a recurring stream."""

    name: str
    severity: int = 0
    round: int = 0


@dataclass(frozen=True)
class Batch:
    """One arrival of a stream.

    Attributes:
        images: (n, c, h, w) in [0, 1].
        labels: (n,), or None where nobody knows them; only ``run`` ever looks at them.
        domain: where the images come from.
        index: number of the batch in its stream.
        starts_domain: whether it is the first batch of its domain's stretch.
    """

    images: Tensor
    labels: Tensor | None
    domain: Domain
    index: int
    starts_domain: bool


class Stream(ABC):
    """Batches in a fixed order: finite and replayable, two passes give the same bits."""

    num_classes: int

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def recipe(self) -> dict[str, Any]:
        """Return plain data that says how the stream is made, enough to make it again."""

    def from_batch(self, first: int) -> Iterator[Batch]:
        """Iterate from batch ``first`` on; a stream that can skip without work does better than this."""
        return (batch for batch in self if batch.index >= first)


@dataclass(frozen=True)
class Output:
    """What a step answers: detached logits (n, classes), and facts a report may plot, a number or a vector each."""

    logits: Tensor
    facts: Mapping[str, Tensor | float] = field(default_factory=dict)


_methods: dict[str, type[Adapter]] = {}
_EXTRA_STATE = {"method", "config", "steps", "optimizers", "generators"}


def registered_methods() -> Mapping[str, type[Adapter]]:
    """Return the methods that have been imported so far, by name."""
    return _methods


class Adapter(nn.Module, ABC):
    """A network that learns from the images it answers: ``adapter(images)`` gives logits and takes one step.

    A method writes ``Config``, ``prepare``, ``build`` and ``adapt``. Whatever it keeps between steps is registered
    state: parameters, buffers, sub-modules, optimizers and CPU generators held as attributes. Reset, save and load
    follow from that and need no code in a method.

    Args:
        model: any network that maps images (n, c, h, w) in [0, 1] to logits; it is copied and never touched.
        config: the method's settings; defaults where left out.
        seed: drives all randomness of the method.
        source: the training data, for methods that declare ``needs_source``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    needs_source: ClassVar[bool] = False
    learns: ClassVar[str] = "nothing"
    forward_units: ClassVar[float] = 1
    backward_units: ClassVar[float] = 0

    class Config(Settings):
        """No settings."""

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls.name = name
            cls.title = vars(cls).get("title", name)
            _methods[name] = cls

    def __init__(self, model: nn.Module, config: Settings | None = None, *, seed: int = 0, source: Any = None) -> None:
        super().__init__()
        if self.needs_source and source is None:
            raise UsageError(f"{self.name} needs the training data: give it as source=…, or take a source-free method")
        self.config: Any = config if config is not None else self.Config()
        self.seed = seed
        self.generator = torch.Generator()
        self.generator.manual_seed(seed)
        self.steps = 0
        with torch.inference_mode(False):  # tensors made in inference mode could never learn
            self.model = self.prepare(_own_copy(model))
            self.build(source)
            self._birth = copy.deepcopy(self._changing_state())

    # --- what a method writes ------------------------------------------------------------------------------------

    def prepare(self, model: nn.Module) -> nn.Module:
        """Choose which parameters learn and which norm layers use batch statistics; the default freezes everything.

        ``model`` is the adapter's own copy, in eval mode, with every parameter frozen.
        """
        return model

    def build(self, source: Any) -> None:
        """Make what the method keeps between steps: optimizer, teacher, memory."""

    @abstractmethod
    def adapt(self, images: Tensor) -> Output:
        """Answer one batch, then learn from it; gradients are on."""

    def fact_labels(self) -> dict[str, list[str]]:
        """Return, for each fact that is a vector, what its entries are called."""
        return {}

    # --- what users call -----------------------------------------------------------------------------------------

    def forward(self, images: Tensor) -> Tensor:
        """Answer one batch and learn from it: logits (n, classes), detached."""
        return self.step(images).logits

    def step(self, images: Tensor) -> Output:
        """Check the input, answer one batch, learn from it, and return the answer with the method's facts."""
        images = self._checked(images)
        with torch.inference_mode(False), torch.enable_grad():
            output = self.adapt(images.clone() if images.is_inference() else images.detach())
        self.steps += 1
        return output

    def predict(self, images: Tensor) -> Tensor:
        """Answer and change nothing."""
        images = self._checked(images)
        with torch.no_grad():
            return self.model(images)

    def reset(self) -> None:
        """Go back, bit for bit, to the state after construction."""
        with torch.inference_mode(False):
            self._restore(self._birth)

    def train(self, mode: bool = True) -> Adapter:
        """Change nothing: an adapter sets its own modes, so that ``.eval()`` around it is harmless."""
        return self

    # --- state ---------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """Return what ``state_dict`` keeps besides tensors: method, settings, steps, optimizers, generators."""
        return {
            "method": self.name,
            "config": self.config.model_dump(mode="json"),
            "steps": self.steps,
            "optimizers": {name: value.state_dict() for name, value in self._of_type(Optimizer).items()},
            "generators": {name: value.get_state() for name, value in self._of_type(torch.Generator).items()},
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take what ``get_extra_state`` gave."""
        self.steps = state["steps"]
        for name, optimizer in self._of_type(Optimizer).items():
            optimizer.load_state_dict(copy.deepcopy(state["optimizers"][name]))
        for name, generator in self._of_type(torch.Generator).items():
            generator.set_state(state["generators"][name].cpu())

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Go on from a saved state: another method's is refused, other settings are warned about."""
        extra = state_dict.get("_extra_state")
        if not isinstance(extra, Mapping) or not set(extra) >= _EXTRA_STATE:
            raise UsageError("this state holds no method: expected what an adapter's state_dict() returned")
        if extra["method"] != self.name:
            raise UsageError(f"this state belongs to «{extra['method']}», this adapter is «{self.name}»: make that one")
        own = self.config.model_dump(mode="json")
        differing = [key for key in own if extra["config"].get(key, own[key]) != own[key]]
        if differing:
            warnings.warn(f"the saved state was made with other settings: {', '.join(differing)}", stacklevel=2)
        self._check_fit(state_dict)
        with torch.inference_mode(False):
            return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def _check_fit(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse a state of another network before anything of it is taken over."""
        own = {name: tuple(value.shape) for name, value in self.state_dict().items() if isinstance(value, Tensor)}
        given = {name: tuple(value.shape) for name, value in state_dict.items() if isinstance(value, Tensor)}
        for name, optimizer in self._of_type(Optimizer).items():
            own |= _groups_of(name, optimizer.state_dict())
            given |= _groups_of(name, state_dict["_extra_state"]["optimizers"].get(name, {}))
        differing = [name for name in own | given if own.get(name) != given.get(name)]
        if differing:
            named = [
                f"{name}: expected {own.get(name, 'nothing')}, found {given.get(name, 'nothing')}" for name in differing
            ]
            raise collected("this state belongs to another network or another optimizer:", named[:8])

    def _of_type(self, kind: type) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if isinstance(value, kind)}

    def _changing_state(self) -> dict[str, Any]:
        """Return all that a step may change; the network's frozen parameters stay out: a reset costs no second one."""
        frozen = {f"model.{name}" for name, value in self.model.named_parameters() if not value.requires_grad}
        tensors = {name: value for name, value in self.named_parameters() if name not in frozen}
        tensors |= dict(self.named_buffers())
        return {"tensors": {name: value.detach() for name, value in tensors.items()}, "extra": self.get_extra_state()}

    @torch.no_grad()
    def _restore(self, state: Mapping[str, Any]) -> None:
        own = dict(self.named_parameters()) | dict(self.named_buffers())
        for name, value in state["tensors"].items():
            own[name].copy_(value)
        self.set_extra_state(state["extra"])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Adapter:
        super()._apply(fn, recurse)
        self._birth["tensors"] = {name: fn(value) for name, value in self._birth["tensors"].items()}
        for optimizer in self._of_type(Optimizer).values():
            optimizer.load_state_dict(optimizer.state_dict())  # moves its moments to where the parameters went
        return self

    # --- input ---------------------------------------------------------------------------------------------------

    def _checked(self, images: Tensor) -> Tensor:
        """Return the images if a step can take them; otherwise raise with every problem found."""
        if not isinstance(images, Tensor):
            raise UsageError(
                f"expected a tensor of images, found {type(images).__name__}: convert it with torch.as_tensor"
            )
        problems = _shape_problems(images) or _value_problems(images) or self._dtype_problems(images)
        if problems:
            raise collected("these images cannot be adapted to:", problems)
        return images

    def _dtype_problems(self, images: Tensor) -> list[str]:
        own = next((value.dtype for value in self.model.parameters() if value.is_floating_point()), images.dtype)
        fits = images.dtype == own or torch.is_autocast_enabled(images.device.type)
        return [] if fits else [f"dtype {images.dtype}: the model computes in {own}; images.to({own})"]


def _groups_of(name: str, state: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return what the groups of an optimizer's state are made of: their settings' names and how many tensors."""
    groups = enumerate(state.get("param_groups", []))
    return {f"{name} group {number}": (*sorted(group), len(group["params"])) for number, group in groups}


def _own_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy in eval mode, every parameter frozen and free of gradients."""
    own = copy.deepcopy(model).eval().requires_grad_(False)
    own.zero_grad(set_to_none=True)
    return own


def _shape_problems(images: Tensor) -> list[str]:
    problems = []
    if images.ndim != 4:
        problems.append(
            f"shape {tuple(images.shape)}: expected (n, channels, height, width); a single image: images[None]"
        )
    elif images.numel() == 0:
        problems.append(f"shape {tuple(images.shape)}: the batch is empty: leave it out")
    if not images.is_floating_point():
        problems.append(f"dtype {images.dtype}: expected floats in [0, 1]; for uint8 divide by 255")
    return problems


def _value_problems(images: Tensor) -> list[str]:
    low, high = (float(value) for value in torch.aminmax(images.detach()))
    if low != low or high != high:
        return ["some pixels are NaN: look at what made them"]
    if low < -1e-3 or high > 1 + 1e-3:
        hint = "divide by 255" if high > 2 else "leave the normalisation to the model"
        return [f"values from {low:.3g} to {high:.3g}: expected [0, 1]; {hint}"]
    return []


def make_adapter(
    method: str, model: nn.Module, settings: Mapping[str, Any], *, seed: int = 0, source: Any = None
) -> Adapter:
    """Return the adapter called ``method`` around a copy of ``model``."""
    if method not in _methods:
        raise unknown("method", method, sorted(_methods))
    kind = _methods[method]
    return kind(model, parse(kind.Config, settings, where=f"method {method}"), seed=seed, source=source)
