"""The nouns keep their word: what an adapter accepts, keeps, gives back and refuses."""

import copy
import dataclasses

import pytest
import torch
from torch import nn

from driftlaw.checks.snapshots import differences, network_of, state_of
from driftlaw.checks.subject import make_images, tiny_model
from driftlaw.contract import Adapter, Batch, Domain, Output, Stream, make_adapter, registered_methods
from driftlaw.errors import UsageError
from tests.checks.broken_methods import Good


def small_model(channels=4):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.Flatten(), nn.Linear(channels * 196, 4)
    )


@pytest.fixture
def adapter():
    torch.manual_seed(0)
    return Good(small_model())


# --- nouns ---------------------------------------------------------------------------------------------------------


def test_batches_domains_and_outputs_are_frozen():
    for thing in (Domain("fog", 5), Output(torch.zeros(1, 2)), Batch(make_images(), None, Domain("fog"), 0, True)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            thing.extra = 1


def test_a_stream_that_cannot_skip_still_goes_on_from_a_batch():
    class Counted(Stream):
        num_classes = 2

        def __iter__(self):
            return (Batch(make_images(n), None, Domain("fog"), n, n == 0) for n in range(4))

        def __len__(self):
            return 4

        def recipe(self):
            return {}

    assert [batch.index for batch in Counted().from_batch(2)] == [2, 3]


# --- registration --------------------------------------------------------------------------------------------------


@pytest.fixture
def registry():
    before = dict(registered_methods())
    yield registered_methods()
    registered_methods().clear()
    registered_methods().update(before)


def test_a_named_class_is_registered_and_made_by_its_name(registry):
    class Mine(Good, name="mine"):
        pass

    assert registry["mine"] is Mine
    made = make_adapter("mine", small_model(), {"learning_rate": 0.5}, seed=4)
    assert isinstance(made, Mine)
    assert (made.config.learning_rate, made.seed) == (0.5, 4)


def test_a_method_without_a_title_goes_by_its_name(registry):
    class Mine(Adapter, name="mine"):
        def adapt(self, images):
            return Output(self.model(images))

    assert Mine.title == "mine"


def test_unknown_methods_and_settings_get_the_nearest_name(registry):
    class Mine(Good, name="mine"):
        pass

    with pytest.raises(UsageError, match="did you mean «mine»"):
        make_adapter("mane", small_model(), {})
    with pytest.raises(UsageError, match=r"wrong settings for method mine:\n.*did you mean «learning_rate»"):
        make_adapter("mine", small_model(), {"learnin_rate": 1})


def test_a_method_that_needs_its_source_says_so():
    class Needy(Good):
        needs_source = True

    with pytest.raises(UsageError, match="needs the training data: give it as source="):
        Needy(small_model())
    Needy(small_model(), source=[])


def test_a_class_without_adapt_cannot_be_made():
    class Idle(Adapter):
        name = "idle"

    with pytest.raises(TypeError, match="adapt"):
        Idle(small_model())


# --- the copy it works on ------------------------------------------------------------------------------------------


def test_prepare_is_given_a_frozen_copy_in_eval_mode_without_gradients():
    given = []

    class Looking(Good):
        def prepare(self, model):
            given.append(network_of(model))
            return super().prepare(model)

    model = small_model().train()
    model[3].weight.grad = torch.ones_like(model[3].weight)
    Looking(model)
    assert not any(given[0]["learning"].values())
    assert not any(given[0]["modes"].values())
    assert all(value is None for value in given[0]["gradients"].values())
    assert model.training
    assert model[3].weight.grad is not None


def test_the_caller_keeps_the_model_when_it_changes_it_later(adapter):
    model = small_model()
    own = Good(model)
    expected = own.predict(make_images())
    with torch.no_grad():
        model[3].bias.add_(1)
    assert torch.equal(own.predict(make_images()), expected)


# --- steps ---------------------------------------------------------------------------------------------------------


def test_calling_equals_stepping_and_counts(adapter):
    twin = copy.deepcopy(adapter)
    assert torch.equal(adapter(make_images()), twin.step(make_images()).logits)
    assert adapter.steps == twin.steps == 1
    adapter.predict(make_images())
    assert adapter.steps == 1


def test_a_step_that_fails_is_not_counted(adapter):
    with pytest.raises(RuntimeError):
        adapter(make_images()[:, :1])
    assert adapter.steps == 0


def test_inference_tensors_are_taken(adapter):
    twin = copy.deepcopy(adapter)
    with torch.inference_mode():
        inside = adapter(make_images())
    assert torch.equal(inside, twin(make_images()))


def test_no_gradient_reaches_what_the_caller_made_the_images_with(adapter):
    images = make_images().requires_grad_(True)
    adapter(images)
    assert images.grad is None


def test_eval_and_train_return_the_adapter_and_change_nothing(adapter):
    before = state_of(adapter)
    assert adapter.eval() is adapter
    assert adapter.train() is adapter
    assert differences(before, state_of(adapter)) == []


# --- input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            make_images()[0],
            r"shape \(3, 16, 16\): expected \(n, channels, height, width\); a single image: images\[None\]",
        ),
        ((make_images() * 255).byte(), "for uint8 divide by 255"),
        (make_images() * 255, "expected .0, 1.; divide by 255"),
        (make_images() * 2 - 1, "leave the normalisation to the model"),
        (make_images() * torch.nan, "some pixels are NaN"),
        (make_images() * torch.inf, "expected .0, 1.|NaN"),
        (make_images()[:0], "the batch is empty"),
        (make_images()[:, :, :0], "the batch is empty"),
        (make_images().numpy(), "expected a tensor of images, found ndarray: convert it with torch.as_tensor"),
        (make_images().double(), "the model computes in torch.float32"),
        (make_images().half(), "the model computes in torch.float32"),
    ],
)
def test_wrong_images_are_refused_with_the_remedy(adapter, images, message):
    before = state_of(adapter)
    for call in (adapter, adapter.step, adapter.predict):
        with pytest.raises(UsageError, match=message):
            call(images)
    assert differences(before, state_of(adapter)) == []


def test_all_problems_of_a_shape_are_told_at_once(adapter):
    with pytest.raises(UsageError, match=r"(?s)shape \(3, 16, 16\).*dtype torch.uint8"):
        adapter((make_images()[0] * 255).byte())


def test_values_a_hair_outside_are_taken(adapter):
    adapter(make_images() * 1.0005)


# --- state ---------------------------------------------------------------------------------------------------------


def test_a_state_says_what_it_is_of(adapter):
    adapter(make_images())
    extra = adapter.state_dict()["_extra_state"]
    assert extra["method"] == "good"
    assert extra["config"] == {"learning_rate": 0.01, "careful": True}
    assert extra["steps"] == 1
    assert set(extra["optimizers"]) == {"optimizer"}
    assert set(extra["generators"]) == {"generator"}


def test_a_state_of_another_network_is_refused_and_changes_nothing(adapter):
    before = state_of(adapter)
    with pytest.raises(UsageError, match=r"model.0.weight: expected \(4, 3, 3, 3\), found \(5, 3, 3, 3\)"):
        adapter.load_state_dict(Good(small_model(5)).state_dict())
    assert differences(before, state_of(adapter)) == []


def test_a_state_of_another_optimizer_is_refused_and_changes_nothing():
    from driftlaw.adapters.tent import Tent

    adapter = Tent(small_model(), Tent.Config(optimizer="sgd"))
    before = state_of(adapter)
    with pytest.warns(UserWarning, match="other settings: optimizer"), pytest.raises(UsageError, match="optimizer"):
        adapter.load_state_dict(Tent(small_model()).state_dict())
    assert differences(before, state_of(adapter)) == []


def test_a_state_that_lacks_something_is_refused(adapter):
    state = adapter.state_dict()
    for broken in ({**state, "_extra_state": {"method": "good"}}, {**state, "_extra_state": None}, {}):
        with pytest.raises(UsageError, match="expected what an adapter's state_dict"):
            adapter.load_state_dict(broken)


def test_other_settings_are_named_in_the_warning(adapter):
    other = Good(small_model(), Good.Config(learning_rate=0.5))
    with pytest.warns(UserWarning, match="other settings: learning_rate"):
        other.load_state_dict(adapter.state_dict())


def test_what_is_loaded_becomes_its_own(adapter):
    adapter(make_images())
    other = Good(small_model())
    other.load_state_dict(adapter.state_dict())
    before = state_of(adapter)
    other(make_images(1))
    assert differences(before, state_of(adapter)) == []


@pytest.mark.parametrize("moment", ["made", "loaded", "reset"])
def test_an_adapter_made_loaded_or_reset_in_inference_mode_goes_on_outside(adapter, moment):
    adapter(make_images())
    state = copy.deepcopy(adapter.state_dict())
    other = Good(small_model())
    with torch.inference_mode():
        if moment == "made":
            other = Good(small_model())
        elif moment == "loaded":
            other.load_state_dict(state)
        else:
            other.reset()
    assert other(make_images(1)).isfinite().all()


def test_a_teacher_that_takes_no_gradients_is_reset():
    class Taught(Good):
        def build(self, source):
            super().build(source)
            self.teacher = copy.deepcopy(self.model).requires_grad_(False)

        def adapt(self, images):
            output = super().adapt(images)
            for mine, own in zip(self.teacher.parameters(), self.model.parameters(), strict=True):
                mine.data.lerp_(own.data, 0.5)
            return output

    adapter = Taught(small_model())
    before = state_of(adapter)
    adapter(make_images())
    assert any("teacher" in name for name in differences(before, state_of(adapter)))
    adapter.reset()
    assert differences(before, state_of(adapter)) == []


def test_reset_keeps_no_second_copy_of_what_is_frozen():
    adapter = Good(tiny_model())
    kept = set(adapter._birth["tensors"])
    frozen = {f"model.{name}" for name, value in adapter.model.named_parameters() if not value.requires_grad}
    assert frozen
    assert not kept & frozen


def test_an_adapter_moved_to_float64_goes_on_and_resets(adapter):
    fresh = copy.deepcopy(adapter).double()
    adapter(make_images())
    adapter.double()
    assert adapter(make_images(1, dtype=torch.float64)).dtype == torch.float64
    assert all(value["momentum_buffer"].dtype == torch.float64 for value in adapter.optimizer.state.values())
    adapter.reset()
    assert differences(state_of(fresh), state_of(adapter)) == []
