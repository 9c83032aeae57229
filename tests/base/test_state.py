"""State of an adapter: reset, save and load."""

import copy
import warnings

import pytest
import torch

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images, tiny_model
from driftlaw.testing.snapshots import differences, model_state, state_of
from tests.base.models import small_model
from tests.testing.broken_methods import Good


def test_the_extra_state_names_method_settings_and_steps(adapter):
    adapter(make_images())
    extra = adapter.state_dict()["_extra_state"]
    assert extra["method"] == "good"
    assert extra["config"] == {"learning_rate": 0.01, "careful": True}
    assert extra["steps"] == 1
    assert set(extra["optimizers"]) == {"optimizer"}
    assert set(extra["generators"]) == {"generator"}


def test_a_state_of_another_model_is_refused_and_changes_nothing(adapter):
    before = state_of(adapter)
    with pytest.raises(UsageError, match=r"model.0.weight: expected \(4, 3, 3, 3\), found \(5, 3, 3, 3\)"):
        adapter.load_state_dict(Good(small_model(5)).state_dict())
    assert differences(before, state_of(adapter)) == []


def test_a_state_of_another_optimizer_is_refused_and_changes_nothing():
    from driftlaw.methods.tent import Tent

    adapter = Tent(small_model(), Tent.Config(optimizer="sgd"))
    before = state_of(adapter)
    with pytest.warns(UserWarning, match="other settings: optimizer"), pytest.raises(UsageError, match="optimizer"):
        adapter.load_state_dict(Tent(small_model()).state_dict())
    assert differences(before, state_of(adapter)) == []


def test_an_incomplete_state_is_refused(adapter):
    state = adapter.state_dict()
    for broken in ({**state, "_extra_state": {"method": "good"}}, {**state, "_extra_state": None}, {}):
        with pytest.raises(UsageError, match="Pass what an adapter's state_dict"):
            adapter.load_state_dict(broken)


def test_differing_settings_are_named_in_a_warning(adapter):
    other = Good(small_model(), Good.Config(learning_rate=0.5))
    with pytest.warns(UserWarning, match=r"other settings: learning_rate \(0.01 saved, 0.5 here\)\. .* keeps its own"):
        other.load_state_dict(adapter.state_dict())


def test_with_differing_settings_the_adapter_keeps_its_own_and_loads_the_moments(adapter):
    adapter(make_images())
    other = Good(small_model(), Good.Config(learning_rate=0.5))
    with pytest.warns(UserWarning, match="keeps its own"):
        other.load_state_dict(adapter.state_dict())
    assert other.config.learning_rate == 0.5
    assert [group["lr"] for group in other.optimizer.param_groups] == [0.5]
    moments = [[entry["momentum_buffer"] for entry in one.optimizer.state.values()] for one in (adapter, other)]
    assert all(torch.equal(mine, own) for mine, own in zip(*moments, strict=True))
    assert other.steps == 1


def test_a_learning_rate_that_a_method_changed_is_loaded(adapter):
    adapter.optimizer.param_groups[0]["lr"] = 0.003
    other = Good(small_model())
    other.load_state_dict(adapter.state_dict())
    assert other.optimizer.param_groups[0]["lr"] == 0.003


def test_a_state_of_another_source_model_is_warned_about_and_reset_is_complete(adapter):
    torch.manual_seed(1)
    other = Good(small_model())
    own, images = model_state(other), make_images()
    adapter(images)
    with pytest.warns(
        UserWarning,
        match=r"different source model \(frozen parameter model.0.weight",
    ):
        other.load_state_dict(adapter.state_dict())
    assert torch.equal(other.predict(images), adapter.predict(images))
    other.load_state_dict(adapter.state_dict())
    other.reset()
    assert not differences(own, model_state(other))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_state_dict(other.state_dict())


@pytest.mark.parametrize("method", ["law", "tent", "cotta"])
def test_loading_with_assign_equals_loading_by_copy(method):
    first = driftlaw.adapt(tiny_model(), method)
    first(make_images())
    saved = copy.deepcopy(first.state_dict())
    copied, assigned = driftlaw.adapt(tiny_model(), method), driftlaw.adapt(tiny_model(), method)
    copied.load_state_dict(copy.deepcopy(saved))
    assigned.load_state_dict(copy.deepcopy(saved), assign=True)
    for number in (1, 2):
        assert torch.equal(copied(make_images(number)), assigned(make_images(number)))
    assert not differences(model_state(copied), model_state(assigned))
    assert differences(saved, assigned.state_dict())


def test_a_state_that_does_not_fit_because_of_settings_names_them():
    saved = driftlaw.adapt(tiny_model(), "norm", statistics="window").state_dict()
    with (
        pytest.warns(UserWarning, match="other settings"),
        pytest.raises(UsageError, match=r"other settings \(statistics \(window saved, batch here\)\) and does not fit"),
    ):
        driftlaw.adapt(tiny_model(), "norm", statistics="batch").load_state_dict(saved)


def test_a_loaded_state_is_a_copy(adapter):
    adapter(make_images())
    other = Good(small_model())
    other.load_state_dict(adapter.state_dict())
    before = state_of(adapter)
    other(make_images(1))
    assert differences(before, state_of(adapter)) == []


@pytest.mark.parametrize("moment", ["create", "load", "reset"])
def test_creating_loading_and_resetting_work_in_inference_mode(moment):
    model = small_model()
    saved = Good(model)
    saved(make_images())
    state = copy.deepcopy(saved.state_dict())
    other, expected = Good(model), Good(model)
    with torch.inference_mode():
        if moment == "create":
            other = Good(model)
        elif moment == "load":
            other.load_state_dict(state)
        else:
            other.reset()
    if moment == "load":
        expected.load_state_dict(state)
    assert torch.equal(other(make_images(1)), expected(make_images(1)))


def test_a_frozen_teacher_is_reset():
    class WithTeacher(Good):
        def setup(self, train_data):
            super().setup(train_data)
            self.teacher = copy.deepcopy(self.model).requires_grad_(False)

        def update(self, images, plan):
            output = super().update(images, plan)
            for mine, own in zip(self.teacher.parameters(), self.model.parameters(), strict=True):
                mine.data.lerp_(own.data, 0.5)
            return output

    adapter = WithTeacher(small_model())
    before = state_of(adapter)
    adapter(make_images())
    assert any("teacher" in name for name in differences(before, state_of(adapter)))
    adapter.reset()
    assert differences(before, state_of(adapter)) == []


def test_the_initial_state_has_no_copy_of_frozen_parameters():
    adapter = Good(tiny_model())
    kept = set(adapter._initial_state["tensors"])
    frozen = {f"model.{name}" for name, value in adapter.model.named_parameters() if not value.requires_grad}
    assert frozen
    assert not kept & frozen


def test_an_adapter_moved_to_float64_continues_and_resets(adapter):
    fresh = copy.deepcopy(adapter).double()
    adapter(make_images())
    adapter.double()
    assert adapter(make_images(1, dtype=torch.float64)).dtype == torch.float64
    assert all(value["momentum_buffer"].dtype == torch.float64 for value in adapter.optimizer.state.values())
    adapter.reset()
    assert differences(state_of(fresh), state_of(adapter)) == []
