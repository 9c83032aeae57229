"""driftlaw.adapt: the method, its class, and its settings."""

import numpy as np
import pytest
import torch

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images, tiny_dense_model, tiny_model
from tests.testing.broken_methods import Good


def test_a_method_may_be_a_class():
    adapter = driftlaw.adapt(tiny_model(), Good, learning_rate=0.25)
    assert type(adapter) is Good
    assert adapter.config.learning_rate == 0.25
    assert adapter(make_images()).shape == (8, 4)


def test_a_class_is_used_itself_although_another_has_its_name():
    from driftlaw.methods.tent import Tent

    class Mine(Tent):
        pass

    assert type(driftlaw.adapt(tiny_model(), Mine, preset="cifar10-c")) is Mine
    assert type(driftlaw.adapt(tiny_model(), "tent")) is Tent


def test_the_default_method_depends_on_the_network():
    assert driftlaw.adapt(tiny_model()).name == "law"
    assert driftlaw.adapt(tiny_dense_model()).name == "norm"
    assert driftlaw.AdapterPool(torch.nn.DataParallel(tiny_dense_model()))._adapter.name == "norm"
    without_batch_norm = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 4, 1))
    assert driftlaw.adapt(without_batch_norm).name == "law"
    with pytest.raises(UsageError, match=r"Expected a torch\.nn\.Module"):
        driftlaw.adapt("resnet50")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (torch.nn.Linear, r"Linear is not a method. Define it as `class Linear\(Adapter, name="),
        (driftlaw.load_model, "The method is of type function. Expected the name of a method, such as 'law', or a sub"),
        (7, "The method is of type int"),
        ("tnet", "Unknown method 'tnet'. Did you mean 'tent'"),
        ("cifar10-c", "is a preset, not a method"),
    ],
)
def test_what_is_no_method_is_refused(method, message):
    with pytest.raises(UsageError, match=message):
        driftlaw.adapt(tiny_model(), method)


def test_an_adapter_is_no_method():
    with pytest.raises(UsageError, match="The method is of type Tent"):
        driftlaw.adapt(tiny_model(), driftlaw.adapt(tiny_model(), "tent"))


def test_lr_is_learning_rate():
    adapter = driftlaw.adapt(tiny_model(), "tent", preset="cifar10-c", lr=0.125)
    assert adapter.config.learning_rate == 0.125
    assert adapter.config.model_dump()["learning_rate"] == 0.125
    with pytest.raises(UsageError, match="lr and learning_rate are the same setting; pass only one of them"):
        driftlaw.adapt(tiny_model(), "tent", lr=0.1, learning_rate=0.1)
    with pytest.raises(UsageError, match="learning_rate = -1"):
        driftlaw.adapt(tiny_model(), "tent", lr=-1)
    with pytest.raises(UsageError, match="Unknown setting 'lr'"):
        driftlaw.adapt(tiny_model(), "norm", lr=0.1)


def test_a_numpy_seed_gives_the_same_random_numbers():
    images = make_images()
    one, two = (driftlaw.adapt(tiny_model(), "cotta", seed=seed)(images) for seed in (3, np.int64(3)))
    assert torch.equal(one, two)


@pytest.mark.parametrize("seed", [True, 1.0, -1, 2**63, None])
def test_other_seeds_are_refused(seed):
    with pytest.raises(UsageError, match="Expected an integer from 0"):
        driftlaw.adapt(tiny_model(), "cotta", seed=seed)


@pytest.mark.parametrize("preset", ["", 3, np.array([1, 2]), torch.zeros(0)], ids=repr)
def test_what_is_no_preset_is_refused(preset):
    with pytest.raises(UsageError, match="preset"):
        driftlaw.adapt(tiny_model(), "tent", preset=preset)
