"""The nouns that every room speaks: Domain, Batch, Stream, Output and Adapter."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt, TypeAdapter, model_serializer
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
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


class SmallBatches(Settings):
    """What a method that uses batch statistics does where batches are small; the defaults change nothing.

    Settings named in ``unsaid`` are left out of records and states while they stand at their default, so that those
    read, and compare, as they did before the settings existed.
    """

    unsaid: ClassVar[frozenset[str]] = frozenset({"statistics", "window", "source_share", "minimum_batch"})

    statistics: Literal["batch", "window", "mixed"] = "batch"
    """Statistics of the ``batch``, of a sliding ``window`` of recent images, or ``mixed`` with the source's."""
    window: PositiveInt = 64
    """With ``window``: to how many images a smaller batch is completed, by those that came last before it."""
    source_share: float = Field(default=0.5, ge=0.0, le=1.0)
    """With ``mixed``: the share s of the source, mean = (1 − s)·batch + s·source; half and half is our choice."""
    minimum_batch: PositiveInt = 1
    """Of fewer images than this, those of the window counted, it answers and does not learn."""

    @property
    def share_of_source(self) -> float:
        """The share of the source's statistics: 0 unless they are mixed."""
        return self.source_share if self.statistics == "mixed" else 0.0

    @model_serializer(mode="wrap")
    def _without_the_unsaid(self, write: Any) -> dict[str, Any]:
        defaults = {name: type(self).model_fields[name].default for name in self.unsaid}
        return {
            name: value
            for name, value in write(self).items()
            if name not in defaults or getattr(self, name) != defaults[name]
        }


class RecentImages(nn.Module):
    """The last ``size`` images that came, newest last; of constant size from the first one on."""

    images: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("images", torch.empty(0), persistent=False)  # nobody knows yet how large an image is
        self.filled = 0

    def complete(self, batch: Tensor) -> Tensor:
        """Return the batch with so many images that came before it in front that there are ``size`` in all."""
        wanted = min(self.size - len(batch), self.filled)
        if wanted <= 0 or self.images.shape[1:] != batch.shape[1:]:
            return batch
        return torch.cat([self.images[self.size - wanted :].to(batch), batch])

    def keep(self, batch: Tensor) -> None:
        """Take the images of a batch in; images of another shape start anew."""
        if self.images.shape[1:] != batch.shape[1:]:
            self.images, self.filled = batch.new_zeros(self.size, *batch.shape[1:]), 0
        self.images = torch.cat([self.images, batch.to(self.images)])[-self.size :].clone()
        self.filled = min(self.filled + len(batch), self.size)

    def clear(self) -> None:
        """Forget all images."""
        self.images, self.filled = self.images.new_empty(0), 0

    def get_extra_state(self) -> dict[str, Any]:
        """Return the images and how many of them are real."""
        return {"images": self.images, "filled": self.filled}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take what ``get_extra_state`` gave."""
        self.images, self.filled = state["images"].to(self.images.device).clone(), state["filled"]


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
        model: any network that maps images (n, c, h, w) in [0, 1] to logits, or to a tuple, dict or object that holds
            them; it is copied and never touched. What DataParallel or torch.compile wrapped is copied unwrapped.
        config: the method's settings; defaults where left out.
        seed: drives all randomness of the method.
        source: the training data, for methods that declare ``needs_source``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    needs_source: ClassVar[bool] = False
    learns: ClassVar[str] = "nothing"
    moves_statistics: ClassVar[bool] = False
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
        self._said_small = False
        with torch.inference_mode(False):  # tensors made in inference mode could never learn
            self.recent = _recent_images(self.config)
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

    def answer(self, images: Tensor) -> Tensor:
        """Return logits and change nothing: what is said where nothing is learned; the network's unless written."""
        return self.model(images)

    def fact_labels(self) -> dict[str, list[str]]:
        """Return, for each fact that is a vector, what its entries are called."""
        return {}

    # --- what users call -----------------------------------------------------------------------------------------

    def forward(self, images: Tensor) -> Tensor:
        """Answer one batch and learn from it: logits (n, classes), detached."""
        return self.step(images).logits

    def step(self, images: Tensor) -> Output:
        """Check the input, answer one batch, learn from it, and return the answer with the method's facts.

        A batch below ``minimum_batch`` is answered and not learned from, and does not count as a step.
        """
        images = self._checked(images)
        with torch.inference_mode(False), torch.enable_grad(), _without_cached_casts(), self._in_our_words(images):
            images = images.clone() if images.is_inference() else images.detach()
            output = self._adapt_or_answer(self._completed(images))
        if self.recent is None:
            return output
        self.recent.keep(images)
        return Output(output.logits[-len(images) :], output.facts)

    def predict(self, images: Tensor) -> Tensor:
        """Answer and change nothing."""
        images = self._checked(images)
        with torch.no_grad(), _without_cached_casts(), self._in_our_words(images):
            return self._answer(self._completed(images))[-len(images) :]

    def reset(self) -> None:
        """Go back, bit for bit, to the state after construction."""
        with torch.inference_mode(False):
            self._restore(self._birth)

    def train(self, mode: bool = True) -> Adapter:
        """Change nothing: an adapter sets its own modes, so that ``.eval()`` around it is harmless."""
        return self

    # --- small batches -------------------------------------------------------------------------------------------

    def _completed(self, images: Tensor) -> Tensor:
        return images if self.recent is None else self.recent.complete(images)

    def _adapt_or_answer(self, images: Tensor) -> Output:
        least = getattr(self.config, "minimum_batch", 1)
        if len(images) < least:
            return self._only_answer(images, f"it learns from {least} or more (minimum_batch)")
        try:
            output = self.adapt(images)
        except ValueError as error:
            if not _lacks_variance(error):
                raise
            return self._only_answer(images, "it has no statistics of its own where feature maps shrink to 1×1")
        self.steps += 1
        if len(images) == 1 and not self._said_small and self._needs_company():
            self._say_once("one image alone makes poor statistics: take statistics = «window» and a minimum_batch")
        return output

    @torch.no_grad()
    def _only_answer(self, images: Tensor, reason: str) -> Output:
        self._say_once(f"a batch of {len(images)} is answered and not learned from: {reason}")
        return Output(self._answer(images))

    def _say_once(self, text: str) -> None:
        if not self._said_small:
            warnings.warn(f"{text}; this is said once", stacklevel=4)
            self._said_small = True

    def _needs_company(self) -> bool:
        """Tell whether an image's answer hangs on the others of its batch, and nobody else is called in."""
        takes_statistics = isinstance(self.config, SmallBatches) and self.recent is None
        return takes_statistics and any(isinstance(layer, _BatchNorm) for layer in self.model.modules())

    def _answer(self, images: Tensor) -> Tensor:
        """Return what ``answer`` says, with the source's statistics where the images have none of their own."""
        try:
            return self.answer(images)
        except ValueError as error:
            if not _lacks_variance(error):
                raise
        with _stored_statistics(self):
            return self.answer(images)

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
        """Go on from a saved state: another method's is refused, other settings are warned about.

        Where settings differ, this adapter's own hold, its optimizer's rate included; weights, moments, buffers, the
        count of steps and the generator are those of the state.
        """
        extra = state_dict.get("_extra_state")
        if not isinstance(extra, Mapping) or not set(extra) >= _EXTRA_STATE:
            raise UsageError("this state holds no method: expected what an adapter's state_dict() returned")
        if extra["method"] != self.name:
            raise UsageError(f"this state belongs to «{extra['method']}», this adapter is «{self.name}»: make that one")
        differing = self._differing_settings(extra["config"])
        if differing:
            told = "the saved state was made with other settings: " + ", ".join(differing)
            warnings.warn(f"{told}; this adapter's own hold, weights and moments are the saved ones", stacklevel=2)
        self._check_fit(state_dict)
        with torch.inference_mode(False):
            found = super().load_state_dict(state_dict, strict=strict, assign=assign)
        if differing:
            for name, optimizer in self._of_type(Optimizer).items():
                _take_options(optimizer, self._birth["extra"]["optimizers"][name])
        return found

    def _differing_settings(self, saved: Mapping[str, Any]) -> list[str]:
        fields = type(self.config).model_fields
        own = {name: _as_json(getattr(self.config, name)) for name in fields}
        then = {name: saved.get(name, _as_json(entry.get_default())) for name, entry in fields.items()}
        return [f"{name} ({then[name]} there, {own[name]} here)" for name in own if then[name] != own[name]]

    def _check_fit(self, state_dict: Mapping[str, Any]) -> None:
        """Refuse a state of another network before anything of it is taken over."""
        own = {name: _kind_of(value) for name, value in self.state_dict().items()}
        given = {name: _kind_of(value) for name, value in state_dict.items()}
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
        if self.recent is not None:
            self.recent.clear()
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

    @contextmanager
    def _in_our_words(self, images: Tensor) -> Iterator[None]:
        """Turn what a convolution says of a wrong number of channels into what the caller can do about it."""
        try:
            yield
        except RuntimeError as error:
            first = next((layer for layer in self.model.modules() if isinstance(layer, nn.Conv2d)), None)
            found = images.shape[1]
            if first is None or "channels" not in str(error) or found == first.in_channels:
                raise
            hint = "; grey images: images.expand(-1, 3, -1, -1)" if (found, first.in_channels) == (1, 3) else ""
            problem = f"channels: found {found}, the model's first convolution takes {first.in_channels}{hint}"
            raise collected("these images cannot be adapted to:", [problem]) from error

    def _dtype_problems(self, images: Tensor) -> list[str]:
        own = next((value.dtype for value in self.model.parameters() if value.is_floating_point()), images.dtype)
        fits = images.dtype == own or torch.is_autocast_enabled(images.device.type)
        return [] if fits else [f"dtype {images.dtype}: the model computes in {own}; images.to({own})"]


def _groups_of(name: str, state: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return what the groups of an optimizer's state are made of: their settings' names and how many tensors."""
    groups = enumerate(state.get("param_groups", []))
    return {f"{name} group {number}": (*sorted(group), len(group["params"])) for number, group in groups}


def _take_options(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Give an optimizer's groups the rates and other options of a state; moments stay."""
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update({key: value for key, value in saved.items() if key != "params"})


def _as_json(value: Any) -> Any:
    return TypeAdapter(Any).dump_python(value, mode="json")


def _kind_of(value: Any) -> tuple[Any, ...] | str:
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def _recent_images(config: Any) -> RecentImages | None:
    """Return room for recent images where the settings ask for them; refuse settings that would do nothing."""
    if not isinstance(config, SmallBatches):
        return None
    belongs = {"window": "window", "source_share": "mixed"}
    idle = [name for name, kind in belongs.items() if name in config.model_fields_set and config.statistics != kind]
    if idle:
        told = [f"{name} = {getattr(config, name)} goes with statistics = «{belongs[name]}»" for name in idle]
        raise collected(f"these settings do nothing with statistics = «{config.statistics}»:", told)
    return RecentImages(config.window) if config.statistics == "window" else None


# --- the caller's network ----------------------------------------------------------------------------------------


def _own_copy(model: nn.Module) -> nn.Module:
    """Return a deep copy in eval mode that answers with bare logits, every parameter frozen and free of gradients."""
    inner = _unwrapped(model)
    try:
        own = copy.deepcopy(inner).eval().requires_grad_(False)
    except RuntimeError as error:  # torch's word for tensors that are results, as old weight_norm leaves them
        raise UsageError(f"this model cannot be copied, and an adapter works on a copy of it: {error}") from error
    _unwrap_parts(own)
    own.zero_grad(set_to_none=True)
    own.register_forward_hook(_bare_logits)
    return own


def _unwrap_parts(model: nn.Module) -> None:
    """Take off, in place, what stands around parts of a network: per-sample gradients do not go through it."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            inner = _unwrapped(child)
            if inner is not child:
                setattr(module, name, inner)


def _unwrapped(model: Any) -> nn.Module:
    """Return the network inside what DataParallel, DistributedDataParallel and torch.compile put around it."""
    if isinstance(model, Adapter):
        raise UsageError(f"this is an adapter already («{model.name}»): give its model, or the one it was made from")
    if not isinstance(model, nn.Module):
        raise UsageError(f"expected a torch.nn.Module that maps images to logits, found {type(model).__name__}")
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return _unwrapped(model.module)
    compiled = getattr(model, "_orig_mod", None)  # its class lies in a module that takes seconds to import
    return _unwrapped(compiled) if isinstance(compiled, nn.Module) else model


def _bare_logits(model: nn.Module, arguments: Any, answer: Any) -> Tensor:
    """Return the logits (n, classes) in what a network answered."""
    if isinstance(answer, Mapping) and "logits" in answer:
        logits = answer["logits"]
    elif isinstance(answer, list | tuple):
        logits = next((part for part in answer if isinstance(part, Tensor)), None)
    else:
        logits = getattr(answer, "logits", answer)
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise UsageError(
            f"the model answered {_told(answer)}: expected logits (n, classes), alone, first in a tuple or list, under "
            "«logits» in a dict, or as .logits; wrap the model in a module that returns them"
        )
    return logits


def _told(answer: Any) -> str:
    if isinstance(answer, Tensor):
        return f"a tensor of shape {tuple(answer.shape)}"
    if isinstance(answer, Mapping):
        return f"a {type(answer).__name__} with the keys {', '.join(map(str, answer)) or 'none'}"
    if isinstance(answer, list | tuple):
        return f"a {type(answer).__name__} of {', '.join(_told(part) for part in answer[:3]) or 'nothing'}"
    return f"a {type(answer).__name__}"


def _lacks_variance(error: ValueError) -> bool:
    return "more than 1 value per channel" in str(error)  # torch's word, in functional.batch_norm


@contextmanager
def _stored_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, BatchNorm layers normalise with the statistics they were trained with."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    if any(layer.running_mean is None for layer in layers):
        raise UsageError("one image has no statistics on feature maps of 1×1, and the model stores none: give more")
    before = [layer.training for layer in layers]
    try:
        for layer in layers:
            layer.training = False
        yield
    finally:
        for layer, training in zip(layers, before, strict=True):
            layer.training = training


@contextmanager
def _without_cached_casts() -> Iterator[None]:
    """Inside, autocast casts weights at every use: a cast kept from before an update would be a stale weight."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


# --- input -------------------------------------------------------------------------------------------------------


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
