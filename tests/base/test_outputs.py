"""Adapters as a replacement of the caller's model: keyword arguments and types of outputs."""

import copy
import dataclasses
import pickle
from collections import OrderedDict, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images, tiny_model
from tests.execution.networks import needs_compiler


class ModelOutput(OrderedDict):
    """Behaves like ``transformers.utils.ModelOutput``: a dict of the fields that are not None, with attributes."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __delitem__(self, key):
        raise RuntimeError("fields cannot be removed")

    def update(self, *args, **kwargs):
        raise RuntimeError("fields cannot be updated")


@dataclasses.dataclass
class ClassifierOutput(ModelOutput):
    loss: Any = None
    logits: Any = None
    hidden_states: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    logits: torch.Tensor
    features: torch.Tensor
    version: int = 3


Named = namedtuple("Named", "loss logits")


class HubModel(nn.Module):
    """Has the call of a Hugging Face classifier."""

    def __init__(self):
        super().__init__()
        self.network, self.calls = tiny_model(), []

    def forward(self, pixel_values=None, labels=None, scale=None, return_dict=True):
        self.calls.append((labels, scale))
        logits = self.network(pixel_values)
        logits = logits if scale is None else logits * scale
        if not return_dict:
            return logits, (logits,)
        return ClassifierOutput(logits=logits, hidden_states=(logits,))


@pytest.mark.parametrize("method", ["source", "tent", "law", "cotta"])
def test_a_hub_model_is_called_and_answers_as_before(method):
    adapter, plain = driftlaw.adapt(HubModel(), method), driftlaw.adapt(tiny_model(), method)
    for number in range(2):
        images = make_images(number)
        output = adapter(pixel_values=images, labels=torch.zeros(8))
        assert type(output) is ClassifierOutput
        assert torch.equal(output.logits, plain(images))
        assert output["logits"] is output.logits
        assert list(output) == ["logits"]
        assert output.hidden_states is None
    assert {labels for labels, _ in adapter.model.calls} == {None}
    assert torch.equal(adapter.predict(images), plain.predict(images))
    assert torch.equal(adapter.step(images).logits, plain.step(images).logits)


def test_keyword_arguments_reach_all_copies_of_the_model():
    adapter = driftlaw.adapt(HubModel(), "cotta")
    scale = torch.tensor(2.0)
    adapter(make_images(), scale=scale)
    models = [adapter.model, adapter.teacher, adapter.anchor]
    assert all(given is scale for model in models for _, given in model.calls)
    assert all(model.calls for model in models)
    adapter(make_images())
    assert all(model.calls[-1] == (None, None) for model in models)


def test_the_type_of_the_output_may_change_between_calls():
    adapter = driftlaw.adapt(HubModel(), "source")
    logits, hidden = adapter(make_images(), return_dict=False)
    assert hidden is None
    assert torch.equal(adapter(make_images()).logits, logits)


def test_keyword_arguments_are_removed_after_an_error():
    adapter = driftlaw.adapt(HubModel(), "source")
    with pytest.raises(TypeError, match="unknown"):
        adapter(make_images(), unknown=1)
    assert adapter(make_images()).logits.shape == (8, 4)


def test_images_that_cannot_be_found_are_an_error():
    with pytest.raises(UsageError, match="Found the keyword arguments scale, but no images for the first argument"):
        driftlaw.adapt(HubModel(), "source")(scale=torch.ones(()))

    class TextFirst(nn.Module):
        def forward(self, input_ids=None, pixel_values=None):
            return pixel_values.mean((2, 3))

    with pytest.raises(UsageError, match=r"\(input_ids\).*whose forward\(\) has the images first"):
        driftlaw.adapt(TextFirst(), "source")(pixel_values=make_images())


class Wraps(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.network, self.wrap = tiny_model(), wrap

    def forward(self, images):
        return self.wrap(self.network(images))


WRAPS = {
    "tuple": lambda logits: (logits, logits.mean(), "text"),
    "list": lambda logits: [None, logits],
    "namedtuple": lambda logits: Named(logits.mean(), logits),
    "dict": lambda logits: {"logits": logits, "features": logits + 1, "version": 3},
    "dataclass": lambda logits: Frozen(logits, logits.mean()),
    "object": lambda logits: SimpleNamespace(logits=logits, features=logits + 1, version=3),
}
EXPECTED = {
    "tuple": lambda logits: (logits, None, "text"),
    "list": lambda logits: [None, logits],
    "namedtuple": lambda logits: Named(None, logits),
    "dict": lambda logits: {"logits": logits, "features": None, "version": 3},
    "dataclass": lambda logits: Frozen(logits, None),
    "object": lambda logits: SimpleNamespace(logits=logits, features=None, version=3),
}


@pytest.mark.parametrize("kind", WRAPS)
def test_an_output_keeps_its_type(kind):
    adapter, plain = driftlaw.adapt(Wraps(WRAPS[kind]), "tent"), driftlaw.adapt(tiny_model(), "tent")
    for number in range(2):
        output, logits = adapter(make_images(number)), plain(make_images(number))
        expected = EXPECTED[kind](logits)
        assert type(output) is type(expected)
        assert repr(output) == repr(expected)


def test_an_adapter_of_a_hub_model_is_copied_and_pickled():
    adapter = driftlaw.adapt(HubModel(), "tent")
    adapter(pixel_values=make_images())
    others = [copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))]
    logits = adapter(pixel_values=make_images(1)).logits
    assert all(torch.equal(other(pixel_values=make_images(1)).logits, logits) for other in others)


@needs_compiler
def test_a_compiled_model_keeps_the_type_of_its_output():
    adapter = driftlaw.adapt(Wraps(WRAPS["dict"]), "tent", compiled=True)
    output = adapter(make_images())
    assert list(output) == ["logits", "features", "version"]
    assert output["logits"].shape == (8, 4)


@pytest.mark.parametrize("method", ["law", "tent"])
def test_torch_compile_around_an_adapter_changes_nothing(method):
    inner, plain = driftlaw.adapt(tiny_model(), method), driftlaw.adapt(tiny_model(), method)
    compiled = torch.compile(inner)
    for number in range(2):
        assert torch.equal(compiled(make_images(number)), plain(make_images(number)))
    assert inner.steps == 2
    assert torch.equal(compiled.predict(make_images()), plain.predict(make_images()))
    step = torch.compile(lambda images: inner.step(images).logits + 1)
    assert torch.equal(step(make_images(3)), plain(make_images(3)) + 1)
