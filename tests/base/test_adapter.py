"""Adapter: steps, predictions, and the copy of the model it works on."""

import copy
import pickle
import threading
import warnings

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images, tiny_model
from driftlaw.testing.snapshots import differences, model_state, state_of
from tests.base.models import small_model
from tests.testing.broken_methods import Good


def test_configure_gets_a_frozen_copy_in_eval_mode_without_gradients():
    given = []

    class Recording(Good):
        def configure(self, model):
            given.append(model_state(model))
            super().configure(model)

    model = small_model().train()
    model[3].weight.grad = torch.ones_like(model[3].weight)
    Recording(model)
    assert not any(given[0]["requires_grad"].values())
    assert not any(given[0]["modes"].values())
    assert all(value is None for value in given[0]["gradients"].values())
    assert model.training
    assert model[3].weight.grad is not None


def test_later_changes_of_the_callers_model_have_no_effect(adapter):
    model = small_model()
    own = Good(model)
    expected = own.predict(make_images())
    with torch.no_grad():
        model[3].bias.add_(1)
    assert torch.equal(own.predict(make_images()), expected)


def test_calling_equals_step_and_steps_are_counted(adapter):
    duplicate = copy.deepcopy(adapter)
    assert torch.equal(adapter(make_images()), duplicate.step(make_images()).logits)
    assert adapter.steps == duplicate.steps == 1
    adapter.predict(make_images())
    assert adapter.steps == 1


def test_a_wrong_number_of_channels_is_refused_and_changes_nothing(adapter):
    before = state_of(adapter)
    for call in (adapter, adapter.predict):
        with pytest.raises(UsageError, match=r"channels: found 1, .* expects 3; for grayscale use images\.expand"):
            call(make_images()[:, :1])
        with pytest.raises(UsageError, match=r"channels: found 4, the model's first convolution expects 3$"):
            call(make_images()[:, [0, 1, 2, 0]])
    assert adapter.steps == 0
    assert differences(before, state_of(adapter)) == []


@pytest.mark.parametrize("method", ["law", "tent"])
def test_a_model_without_gradients_is_refused(method):
    class NoGradients(nn.Sequential):
        @torch.no_grad()
        def forward(self, images):
            return super().forward(images)

    with pytest.raises(UsageError, match=f"{method} needs gradients, but the model's output does not require grad"):
        driftlaw.adapt(NoGradients(*small_model()), method)(make_images())


@pytest.mark.parametrize("method", ["law", "tent"])
def test_logits_that_are_not_finite_are_warned_about_once(method):
    class DividesByZero(nn.Sequential):
        def forward(self, images):
            return super().forward(images) / (images.mean() > 0.01)

    adapter = driftlaw.adapt(DividesByZero(*small_model()), method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapter(make_images())
    for _ in range(2):
        with pytest.warns(UserWarning, match="NaN or infinite logits for 4 of 4 images") as caught:
            outputs = [adapter(images) for images in (torch.zeros(4, 3, 16, 16), make_images(1))]
        assert len(caught) == 1
        assert outputs[1].isfinite().all()
        adapter.reset()
        assert adapter.predict(make_images()).isfinite().all()


def test_a_second_thread_waits_for_the_step_of_the_first():
    entered, leave, order = threading.Event(), threading.Event(), []

    class Slow(Good):
        def update(self, images, plan):
            order.append("start")
            entered.set()
            leave.wait(60)
            output = super().update(images, plan)
            order.append("end")
            return output

    adapter = Slow(small_model())
    first, second = (threading.Thread(target=adapter, args=(make_images(number),)) for number in range(2))
    first.start()
    entered.wait(60)
    second.start()
    second.join(0.2)
    assert order == ["start"]
    leave.set()
    first.join()
    second.join()
    assert order == ["start", "end", "start", "end"]
    assert adapter.steps == 2


def test_other_errors_of_a_model_are_not_changed(adapter):
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        adapter(make_images()[:, :, :8])
    assert not isinstance(caught.value, UsageError)


def test_inference_tensors_are_accepted(adapter):
    duplicate = copy.deepcopy(adapter)
    with torch.inference_mode():
        inside = adapter(make_images())
    assert torch.equal(inside, duplicate(make_images()))


def test_no_gradient_reaches_the_callers_images(adapter):
    images = make_images().requires_grad_(True)
    adapter(images)
    assert images.grad is None


def test_eval_and_train_change_nothing(adapter):
    before = state_of(adapter)
    assert adapter.eval() is adapter
    assert adapter.train() is adapter
    assert differences(before, state_of(adapter)) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("method", ["source", "norm", "tent", "law"])
def test_under_autocast_images_may_have_any_float_dtype_and_weights_stay_float32(method, dtype):
    adapter = driftlaw.adapt(small_model(), method)
    with torch.autocast("cpu", dtype=torch.float16):
        for number in range(2):
            assert adapter(make_images(number, dtype=dtype)).isfinite().all()
        assert adapter.predict(make_images(dtype=dtype)).dtype == torch.float32
    assert {value.dtype for value in adapter.parameters()} == {torch.float32}
    assert adapter(make_images()).dtype == torch.float32


def test_under_autocast_an_update_is_used_by_the_next_prediction():
    adapter = driftlaw.adapt(small_model(), "law", learning_rate=0.1)
    with torch.autocast("cpu", dtype=torch.float16):
        before = adapter.predict(make_images())
        adapter(make_images())
        after = adapter.predict(make_images())
        assert torch.is_autocast_cache_enabled()
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(adapter.predict(make_images()), after)
    assert not torch.equal(after, before)


@pytest.mark.parametrize("settings", [{}, {"fisher": "per_sample"}, {"statistics": "mixed"}, {"statistics": "window"}])
def test_channels_last_changes_rounding_only(settings):
    model = tiny_model().double()
    plain, last = (driftlaw.adapt(model, "law", **settings) for _ in range(2))
    last.to(memory_format=torch.channels_last)
    for number in range(3):
        images = make_images(number, dtype=torch.float64)
        logits = last(images.to(memory_format=torch.channels_last))
        torch.testing.assert_close(logits, plain(images), rtol=0, atol=1e-8)
    last.reset()
    plain.reset()
    assert torch.equal(last.model.conv.weight, plain.model.conv.weight)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("tent", {}), ("tent", {"statistics": "window"}), ("law", {"moments": "kept"}), ("law", {"statistics": "window"})],
    ids=str,
)
def test_an_adapter_moved_to_float64_equals_one_created_there(method, settings):
    moved, created = (
        driftlaw.adapt(tiny_model(), method, **settings),
        driftlaw.adapt(tiny_model().double(), method, **settings),
    )
    moved(make_images())
    moved.double().reset()
    for number in range(3):
        images = make_images(number, dtype=torch.float64)
        torch.testing.assert_close(moved(images), created(images), rtol=0, atol=1e-12)
    for one, other in zip(moved.parameters(), created.parameters(), strict=True):
        assert one.dtype == torch.float64
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"statistics": "mixed"}, {"statistics": "window"}], ids=str)
def test_pickles_and_deep_copies_continue_the_same(settings):
    adapter = driftlaw.adapt(tiny_model(), "tent", **settings)
    adapter(make_images(0, count=3))
    duplicates = [pickle.loads(pickle.dumps(adapter)), copy.deepcopy(adapter)]
    expected = [adapter(make_images(number, count=3)) for number in (1, 2)]
    for duplicate in duplicates:
        results = [duplicate(make_images(number, count=3)) for number in (1, 2)]
        assert differences(expected, results) == []
        assert differences(state_of(adapter), state_of(duplicate)) == []
