"""Adapter: what a method writes, what users call, and the state that reset, save and load follow from."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from driftlaw.base.inputs import ValueCheck, shape_problems
from driftlaw.base.model_copy import own_copy, unwrapped
from driftlaw.base.small_batches import BatchStatsSettings, lacks_variance, recent_images, stored_statistics
from driftlaw.base.types import Plan, StepOutput
from driftlaw.errors import UsageError, collected, unknown, warn_user
from driftlaw.execution.compile import (
    WEIGHTS_AS_INPUTS,
    compile_network,
    compiler_errors,
    fused,
    running_compiled,
)
from driftlaw.execution.graphs import (
    ExecutionSettings,
    Replays,
    lies_channels_last,
    passes_in,
    runs_in_bf16,
    wants_another_layout,
)
from driftlaw.execution.locks import Lock
from driftlaw.execution.threads import can_have_lanes
from driftlaw.settings import Settings, parse

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
        train_data: the training data, for methods that declare ``needs_train_data``.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    needs_train_data: ClassVar[bool] = False
    adapts: ClassVar[str] = "nothing"
    updates_running_stats: ClassVar[bool] = False
    forward_cost: ClassVar[float] = 1
    backward_cost: ClassVar[float] = 0

    class Config(ExecutionSettings):
        """No settings but those of how a step is run."""

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if name is not None:
            cls.name = name
            cls.title = vars(cls).get("title", name)
            _methods[name] = cls

    def __init__(
        self, model: nn.Module, config: Settings | None = None, *, seed: int = 0, train_data: Any = None
    ) -> None:
        super().__init__()
        given = unwrapped(model)
        if isinstance(given, Adapter):
            raise UsageError(
                f"this is an adapter already («{given.name}»): give its model, or the one it was made from"
            )
        if self.needs_train_data and train_data is None:
            raise UsageError(
                f"{self.name} needs the training data: give it as train_data=…, or take a source-free method"
            )
        self.config: Any = config if config is not None else self.Config()
        self.seed = seed
        self.generator = torch.Generator()
        self.generator.manual_seed(seed)
        self.steps = 0
        self.known: dict[str, Any] = {}  # what the host has read of the state; emptied whenever the state is replaced
        self._said_small = self._said_broken = False
        self._lock = Lock()
        self._values = ValueCheck()
        self._replays = Replays(self._setting("capture", "off"), self._setting("overlap", True))
        with torch.inference_mode(False):  # tensors made in inference mode could never learn
            self.recent = recent_images(self.config)
            self.model = self._laid_out(own_copy(given))
            self.configure(self.model)
            self.setup(train_data)
            self._fit_optimizers()
            self._birth = copy.deepcopy(self._changing_state())
        self._compile()

    def _compile(self) -> None:
        self._compiled = self._setting("compiled", False) and compile_network(self.model)
        self._shapes: set[torch.Size] = set()  # that there is code for

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of a copy or a pickle, which code does not travel with."""
        super().__setstate__({"_lock": Lock(), "_said_broken": False} | state)
        self._compile()

    # --- what a method writes ------------------------------------------------------------------------------------

    def configure(self, model: nn.Module) -> None:
        """Choose which parameters learn and which norm layers use batch statistics; the default freezes everything.

        ``model`` is the adapter's own copy, in eval mode, with every parameter frozen.
        """

    def setup(self, train_data: Any) -> None:
        """Make what the method keeps between steps: optimizer, teacher, memory."""

    def draw(self, images: Tensor) -> Plan:
        """Draw random numbers and make the decisions of this step; runs on the host."""
        return Plan()

    @abstractmethod
    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Answer one batch, then learn from it; gradients are on."""

    def forward_logits(self, images: Tensor) -> Tensor:
        """Return logits and change nothing: what is said where nothing is learned; the network's unless written."""
        return self.model(images)

    def step_kind(self) -> str:
        """Return a word for what the next step will do, where not all steps of a method cost the same."""
        return "step"

    def diagnostic_labels(self) -> dict[str, list[str]]:
        """Return, for each fact that is a vector, what its entries are called."""
        return {}

    # --- what users call -----------------------------------------------------------------------------------------

    def forward(self, images: Tensor) -> Tensor:
        """Answer one batch and learn from it: logits (n, classes), detached."""
        return self.step(images).logits

    def step(self, images: Tensor) -> StepOutput:
        """Check the input, answer one batch, learn from it, and return the answer with the method's facts.

        A batch below ``minimum_batch`` is answered and not learned from, and does not count as a step.
        """
        with self._lock:
            images = self._checked(images)
            passes = passes_in(self._in_bf16(images), images.device)
            compiled = running_compiled(self._compiled)
            with torch.inference_mode(False), torch.enable_grad(), passes, compiled, self._in_our_words(images):
                images = images.clone() if images.is_inference() else images.detach()
                output = self._run(self._adapt_or_answer, self._completed(images))
            if isinstance(output, StepOutput):  # a method of somebody's own may have returned anything
                self._notice_collapse(output.logits)
            if self.recent is None:
                return output
            self.recent.keep(images)
            return StepOutput(output.logits[-len(images) :], output.diagnostics)

    def predict(self, images: Tensor) -> Tensor:
        """Answer and change nothing."""
        with self._lock:
            images = self._checked(images)
            with torch.no_grad(), passes_in(self._in_bf16(images), images.device), self._in_our_words(images):
                return self._run(self._answer, self._completed(images))[-len(images) :]

    def reset(self) -> None:
        """Go back, bit for bit, to the state after construction."""
        with self._lock, torch.inference_mode(False):
            self._restore(self._birth)
        self._said_broken = False

    def train(self, mode: bool = True) -> Adapter:
        """Change nothing: an adapter sets its own modes, so that ``.eval()`` around it is harmless."""
        return self

    # --- how a step is run ---------------------------------------------------------------------------------------

    def replayed(self, function: Callable[..., StepOutput], *tensors: Tensor, variant: Any = None) -> StepOutput:
        """Return ``function(*tensors)``, on a GPU as one captured graph from the third time on.

        A method's ``adapt`` hands its work on the device over to this.

        Args:
            function: a method of the adapter that works on tensors alone: no random number, no number that the host
                must see, no state but what is registered and changed in place.
            tensors: what changes from batch to batch.
            variant: what the host decided, where the function does different things.
        """
        return self._replays.run(function, *tensors, variant=variant)

    def beside(self, function: Callable[..., Tensor], *tensors: Tensor) -> Callable[[], Tensor]:
        """Begin a pass that a captured step may run beside the next ones; call what is returned for its answer."""
        return self._replays.beside(function, *tensors)

    def has_lanes(self, images: Tensor) -> bool:
        """Tell whether passes of a step on these images may run side by side in ``open_lanes``."""
        return self._replays.overlap and images.device.type == "cpu" and can_have_lanes()

    def has_third_lane(self) -> bool:
        """Tell whether three passes may share two cores, two of them going back through the same graph at a time.

        Compiled passes may; and with one thread each, none waits for threads that have no core at the moment.
        """
        return self._compiled and torch.get_num_threads() == 2

    def starts_compiling(self, images: Tensor) -> bool:
        """Tell whether a compiled network meets images of this shape for the first time, and remember them."""
        new = self._compiled and images.shape not in self._shapes
        self._shapes.add(images.shape)
        return new

    def takes_other_weights(self) -> bool:
        """Tell whether the network may be called with other tensors in place of its weights."""
        return WEIGHTS_AS_INPUTS or not self._compiled

    def fused(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of tensors, on a GPU in one piece where the network is compiled too.

        Every set of shapes is compiled for itself: it should be called with few.
        """
        return fused(function) if self._compiled and self._lies_on_gpu() else function

    @contextmanager
    def eager(self) -> Iterator[None]:
        """Inside, steps run as written: what a graph, a compiler or another thread does is not seen by counters."""
        replays, compiled, code = self._replays, self._compiled, self.model._compiled_call_impl
        before = replays.wanted, replays.overlap
        replays.wanted, replays.overlap = "off", False
        self._compiled, self.model._compiled_call_impl = False, None
        try:
            yield
        finally:
            replays.wanted, replays.overlap = before
            self._compiled, self.model._compiled_call_impl = compiled, code

    def execution_info(self) -> dict[str, Any]:
        """Return how steps run on the device at hand, as plain data for a record."""
        own = next(self.model.parameters(), torch.empty(0))
        bf16 = runs_in_bf16(self._setting("precision", "float32"), own.device, own.dtype)
        return {
            "precision": "bf16" if bf16 else str(own.dtype).removeprefix("torch."),
            "channels_last": self._channels_last,
            "capture": self._replays.wanted != "off" and own.is_cuda,
            "compiled": self._compiled,
        }

    def _setting(self, name: str, otherwise: Any) -> Any:
        """Return one of the settings that a method's own Config need not know."""
        return getattr(self.config, name, otherwise)

    def _in_bf16(self, images: Tensor) -> bool:
        return runs_in_bf16(self._setting("precision", "float32"), images.device, self._dtype(images))

    def _dtype(self, images: Tensor) -> torch.dtype:
        return next((value.dtype for value in self.model.parameters() if value.is_floating_point()), images.dtype)

    def _laid_out(self, model: nn.Module) -> nn.Module:
        self._channels_last = lies_channels_last(self._setting("channels_last", "auto"), model)
        self._layout_holds = not self._channels_last
        return model.to(memory_format=torch.channels_last) if self._channels_last else model

    def _run(self, call: Callable[[Tensor], Any], images: Tensor) -> Any:
        """Return ``call(images)``; a network that cannot be compiled is found out at the first step of a shape."""
        if not self._compiled:
            return self._in_layout(call, images)
        if torch._C._len_torch_dispatch_stack() > 0:  # a counter at work, under which torch gives up compiling for good
            with self.eager():
                return self._in_layout(call, images)
        generators = self._generator_states()
        try:
            return self._in_layout(call, images)
        except compiler_errors() as error:
            self._set_generators(generators)
            reason = " ".join(str(error).split("\n")[:2])
        code = self.model._compiled_call_impl
        self._compiled, self.model._compiled_call_impl = False, None
        try:
            answer = self._in_layout(call, images)
        except Exception:  # the images are at fault, not the network
            self._compiled, self.model._compiled_call_impl = True, code
            raise
        warn_user(f"compiled: this network cannot be ({reason}); steps run as written")
        return answer

    def _in_layout(self, call: Callable[[Tensor], Any], images: Tensor) -> Any:
        """Return ``call(images)``; a network that cannot work channels-last is found out the first time."""
        if self._layout_holds:
            return call(images.contiguous(memory_format=torch.channels_last) if self._channels_last else images)
        generators = self._generator_states()
        try:
            answer = call(images.contiguous(memory_format=torch.channels_last))
        except RuntimeError as error:
            if not wants_another_layout(error) or self._setting("channels_last", "auto") == "on":
                raise
            self._set_generators(generators)
            self.to(memory_format=torch.contiguous_format)
            self._channels_last = False
            answer = call(images.contiguous())
        self._layout_holds = True
        return answer

    def _generator_states(self) -> dict[str, Tensor]:
        return {name: value.get_state() for name, value in self._of_type(torch.Generator).items()}

    def _set_generators(self, states: Mapping[str, Tensor]) -> None:
        for name, state in states.items():
            getattr(self, name).set_state(state)

    def _fit_optimizers(self) -> None:
        """Let optimizers count steps where their parameters are: a graph cannot see a number of the host's."""
        for optimizer in self._of_type(Optimizer).values():
            for group in optimizer.param_groups:
                _count_on_device(optimizer, group)

    # --- small batches -------------------------------------------------------------------------------------------

    def _completed(self, images: Tensor) -> Tensor:
        return images if self.recent is None else self.recent.complete(images)

    def _adapt_or_answer(self, images: Tensor) -> StepOutput:
        least = getattr(self.config, "minimum_batch", 1)
        if len(images) < least:
            others = " in its window" if self.recent is not None else ""
            return self._only_answer(images, f"it learns from {least} or more{others} (minimum_batch)")
        try:
            output = self.update(images, self.draw(images))
        except ValueError as error:
            if not lacks_variance(error):
                raise
            return self._only_answer(images, "it has no statistics of its own where feature maps shrink to 1×1")
        self.steps += 1
        if len(images) == 1 and not self._said_small and self._needs_company():
            self._say_once("one image alone makes poor statistics: take statistics = «window» and a minimum_batch")
        return output

    @torch.no_grad()
    def _only_answer(self, images: Tensor, reason: str) -> StepOutput:
        self._say_once(f"a batch of {len(images)} is answered and not learned from: {reason}")
        return StepOutput(self._answer(images))

    def _notice_collapse(self, logits: Tensor) -> None:
        """Say once that a network has gone to pieces; a GPU is not made to wait for a look at every answer."""
        if self._said_broken or logits.device.type != "cpu" or bool(logits.isfinite().all()):
            return
        self._said_broken = True
        warn_user(
            "some answers are not finite: what was learned from them may be lost for good, look at the network and its "
            "images; reset() goes back to the source, a saved state to before; this is said once"
        )

    def _say_once(self, text: str) -> None:
        if not self._said_small:
            warn_user(f"{text}; this is said once")
            self._said_small = True

    def _needs_company(self) -> bool:
        """Tell whether an image's answer hangs on the others of its batch, and nobody else is called in."""
        takes_statistics = isinstance(self.config, BatchStatsSettings) and self.recent is None
        return takes_statistics and any(isinstance(layer, _BatchNorm) for layer in self.model.modules())

    def _answer(self, images: Tensor) -> Tensor:
        """Return what ``answer`` says, with the source's statistics where the images have none of their own."""
        try:
            return self.forward_logits(images)
        except ValueError as error:
            if not lacks_variance(error):
                raise
        with stored_statistics(self):
            return self.forward_logits(images)

    # --- state ---------------------------------------------------------------------------------------------------

    def get_extra_state(self) -> dict[str, Any]:
        """Return what ``state_dict`` keeps besides tensors: method, settings, steps, optimizers, generators."""
        return {
            "method": self.name,
            "config": self.config.model_dump(mode="json"),
            "steps": self.steps,
            "optimizers": {name: value.state_dict() for name, value in self._of_type(Optimizer).items()},
            "generators": self._generator_states(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take what ``get_extra_state`` gave."""
        self.steps = state["steps"]
        self.known.clear()
        for name, optimizer in self._of_type(Optimizer).items():
            optimizer.load_state_dict(copy.deepcopy(state["optimizers"][name]))
            self._replays.forget()  # the moments are other tensors now
        self._fit_optimizers()
        self._set_generators({name: state["generators"][name].cpu() for name in self._of_type(torch.Generator)})

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
            warn_user(f"{told}; this adapter's own hold, weights and moments are the saved ones")
        self._check_fit(state_dict, differing)
        with self._lock, torch.inference_mode(False):
            self._keep_own_source(state_dict)
            names = {value: name for name, value in self.named_parameters()}
            found = super().load_state_dict(state_dict, strict=strict, assign=assign)
        if assign:
            self._replays.forget()
            own = dict(self.named_parameters())
            for optimizer in self._of_type(Optimizer).values():
                _exchange(optimizer, {before: own[name] for before, name in names.items()})
        if differing:
            for name, optimizer in self._of_type(Optimizer).items():
                _take_options(optimizer, self._birth["extra"]["optimizers"][name])
            self._fit_optimizers()
        return found

    def _differing_settings(self, saved: Mapping[str, Any]) -> list[str]:
        fields = type(self.config).model_fields
        own = {name: _as_json(getattr(self.config, name)) for name in fields}
        then = {name: saved.get(name, _as_json(entry.get_default())) for name, entry in fields.items()}
        return [f"{name} ({then[name]} there, {own[name]} here)" for name in own if then[name] != own[name]]

    def _keep_own_source(self, state_dict: Mapping[str, Any]) -> None:
        """Keep the frozen weights that a state of another source replaces: a reset must not leave half of each."""
        named = {f"model.{name}": value for name, value in self.model.named_parameters()}
        own = {name: value for name, value in named.items() if name not in self._birth["tensors"]}
        replaced = [
            name
            for name, value in own.items()
            if name in state_dict and not torch.equal(state_dict[name].to(value), value)
        ]
        if replaced:
            self._birth["tensors"] |= {name: own[name].detach().clone() for name in replaced}
            warn_user(
                f"the saved state was made from another source network ({replaced[0]} differs): it is taken over "
                "whole, and reset() goes back to this adapter's own"
            )

    def _check_fit(self, state_dict: Mapping[str, Any], settings: Sequence[str] = ()) -> None:
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
            whose = (
                f"was made with other settings ({', '.join(settings)})" if settings else "belongs to another network"
            )
            raise collected(f"this state {whose} and does not fit:", named[:8])

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
        self._replays.forget()
        self._birth["tensors"] = {name: fn(value) for name, value in self._birth["tensors"].items()}
        for optimizer in self._of_type(Optimizer).values():
            optimizer.load_state_dict(optimizer.state_dict())  # moves its moments to where the parameters went
        self._fit_optimizers()
        if self._compiled or self._lies_on_gpu():  # a CPU without a compiler has been told of
            self._compile()
        return self

    def _lies_on_gpu(self) -> bool:
        return any(value.is_cuda for value in self.model.parameters())

    # --- input ---------------------------------------------------------------------------------------------------

    def _checked(self, images: Tensor) -> Tensor:
        """Return the images if a step can take them; otherwise raise with every problem found."""
        if not isinstance(images, Tensor):
            raise UsageError(
                f"expected a tensor of images, found {type(images).__name__}: convert it with torch.as_tensor"
            )
        problems = shape_problems(images) or self._dtype_problems(images) or self._values.problems(images)
        if problems:
            raise collected("these images cannot be adapted to:", problems)
        return images

    @contextmanager
    def _in_our_words(self, images: Tensor) -> Iterator[None]:
        """Turn what torch says of a wrong number of channels, or of no gradient, into what a caller can do about it."""
        try:
            yield
        except RuntimeError as error:
            if "does not require grad" in str(error):
                raise UsageError(
                    f"no gradient comes back through this network, and {self.name} learns by it: its forward runs "
                    "under torch.no_grad() or detaches its answer, or its parameters were frozen after adapt()"
                ) from error
            first = next((layer for layer in self.model.modules() if isinstance(layer, nn.Conv2d)), None)
            found = images.shape[1]
            if first is None or "channels" not in str(error) or found == first.in_channels:
                raise
            hint = "; grey images: images.expand(-1, 3, -1, -1)" if (found, first.in_channels) == (1, 3) else ""
            problem = f"channels: found {found}, the model's first convolution takes {first.in_channels}{hint}"
            raise collected("these images cannot be adapted to:", [problem]) from error

    def _dtype_problems(self, images: Tensor) -> list[str]:
        own = self._dtype(images)
        fits = images.dtype == own or torch.is_autocast_enabled(images.device.type)
        return [] if fits else [f"dtype {images.dtype}: the model computes in {own}; images.to({own})"]


def _groups_of(name: str, state: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return what the groups of an optimizer's state are made of: their settings' names and how many tensors."""
    groups = enumerate(state.get("param_groups", []))
    return {f"{name} group {number}": (*sorted(group), len(group["params"])) for number, group in groups}


def _exchange(optimizer: Optimizer, others: Mapping[Tensor, Tensor]) -> None:
    """Let an optimizer work on other tensors in place of its own, with the moments that it has of those."""
    for group in optimizer.param_groups:
        for place, value in enumerate(group["params"]):
            other = others.get(value, value)
            if other is not value:
                group["params"][place] = other
                if value in optimizer.state:
                    optimizer.state[other] = optimizer.state.pop(value)


def _take_options(optimizer: Optimizer, state: Mapping[str, Any]) -> None:
    """Give an optimizer's groups the rates and other options of a state; moments stay."""
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update({key: value for key, value in saved.items() if key != "params"})


def _count_on_device(optimizer: Optimizer, group: dict[str, Any]) -> None:
    if "capturable" not in group:  # SGD counts nothing
        return
    group["capturable"] = any(value.is_cuda for value in group["params"])
    for value in group["params"]:
        moments = optimizer.state.get(value, {})
        if isinstance(moments.get("step"), Tensor):
            moments["step"] = moments["step"].to(value.device if group["capturable"] else "cpu")


def _as_json(value: Any) -> Any:
    return TypeAdapter(Any).dump_python(value, mode="json")


def _kind_of(value: Any) -> tuple[Any, ...] | str:
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def make_adapter(
    method: str, model: nn.Module, settings: Mapping[str, Any], *, seed: int = 0, train_data: Any = None
) -> Adapter:
    """Return the adapter called ``method`` around a copy of ``model``."""
    if method not in _methods:
        raise unknown("method", method, sorted(_methods))
    kind = _methods[method]
    return kind(model, parse(kind.Config, settings, where=f"method {method}"), seed=seed, train_data=train_data)
