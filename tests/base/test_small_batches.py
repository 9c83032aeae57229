"""Small batches: collected images and running statistics, window, mixed and stored statistics, minimum batch."""

import warnings

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import (
    BatchStatsSettings,
    ImageWindow,
)
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images, tiny_model
from driftlaw.testing.snapshots import differences, state_of
from tests.base.models import small_model


def narrow_model():
    """Return a model whose feature maps are 1×1 before the last norm layer."""
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*body, nn.Conv2d(6, 5, 1), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(5, 4))


def test_settings_are_written_only_if_they_differ_from_the_default():
    class Config(BatchStatsSettings):
        rate: float = 1.0

    assert Config(statistics="batch").model_dump(mode="json") == {"rate": 1.0}  # as records of earlier versions
    assert Config().model_dump(mode="json") == {"rate": 1.0, "statistics": "auto"}
    changed = Config(statistics="window", window=8)
    assert changed.model_dump(mode="json") == {"rate": 1.0, "statistics": "window", "window": 8}
    assert Config.model_validate(changed.model_dump()) == changed


def test_settings_without_effect_are_refused():
    with pytest.raises(UsageError, match=r"source_share=0.3 needs statistics='mixed'"):
        driftlaw.adapt(small_model(), source_share=0.3)
    with pytest.raises(UsageError, match=r"'mixed':\n  - window=8 needs statistics='window'"):
        driftlaw.adapt(small_model(), statistics="mixed", window=8)


def test_the_window_holds_the_most_recent_images_in_order():
    window = ImageWindow(5)
    images = torch.arange(9.0).view(9, 1, 1, 1)
    assert torch.equal(window.pad(images[:2]), images[:2])
    window.append(images[:2])
    assert torch.equal(window.pad(images[2:4]), images[:4])
    window.append(images[2:7])
    assert torch.equal(window.pad(images[7:8]), images[3:8])
    assert torch.equal(window.pad(images[3:9]), images[3:9])
    assert window.images.shape[0] == 5
    wide = torch.zeros(1, 1, 2, 2)
    assert torch.equal(window.pad(wide), wide)
    window.append(wide)
    assert window.filled == 1


@pytest.mark.parametrize("method", ["norm", "tent", "law"])
def test_single_images_with_a_window_equal_the_last_ones_of_a_batch(method):
    images = make_images()
    single = driftlaw.adapt(tiny_model(), method, statistics="window", window=8, minimum_batch=8)
    with pytest.warns(UserWarning, match="fewer than minimum_batch=8") as caught:
        results = [single(image[None]) for image in images]
    assert len(caught) == 1
    whole = driftlaw.adapt(tiny_model(), method)
    torch.testing.assert_close(results[-1], whole(images)[-1:], rtol=0, atol=1e-6)
    assert single.steps == whole.steps == 1
    for one, other in zip(single.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_predict_with_a_window_equals_the_step_and_changes_nothing():
    adapter = driftlaw.adapt(tiny_model(), "law", statistics="window", window=8, overlap=False)
    adapter(make_images())
    before = state_of(adapter)
    predicted = adapter.predict(make_images(1, count=2))
    assert differences(before, state_of(adapter)) == []
    assert torch.equal(adapter(make_images(1, count=2)), predicted)


def test_a_state_with_a_window_is_loaded_only_by_an_adapter_with_one():
    adapter = driftlaw.adapt(tiny_model(), "tent", statistics="window", window=6)
    adapter(make_images(0, count=4))
    other = driftlaw.adapt(tiny_model(), "tent", statistics="window", window=6)
    other.load_state_dict(adapter.state_dict())
    assert torch.equal(other(make_images(1, count=2)), adapter(make_images(1, count=2)))
    plain = driftlaw.adapt(tiny_model(), "tent")
    with pytest.warns(UserWarning, match="statistics"), pytest.raises(UsageError, match="window"):
        plain.load_state_dict(adapter.state_dict())


@pytest.mark.parametrize("method", ["norm", "tent", "law"])
def test_batches_below_the_minimum_are_predicted_without_an_update(method):
    adapter = driftlaw.adapt(tiny_model(), method, statistics="batch", minimum_batch=4)
    before = state_of(adapter)
    with pytest.warns(UserWarning, match="The batch has 3 images, fewer than minimum_batch=4") as caught:
        results = [adapter(make_images(number, count=3)) for number in range(3)]
    assert len(caught) == 1
    assert differences(before, state_of(adapter)) == []
    assert torch.equal(results[0], adapter.predict(make_images(0, count=3)))
    adapter(make_images(count=4))
    assert adapter.steps == 1


@pytest.mark.parametrize("settings", [{"statistics": "batch"}, {"statistics": "window"}], ids=str)
@pytest.mark.parametrize("method", ["norm", "tent", "law"])
def test_one_image_without_batch_statistics_is_predicted_with_stored_ones(method, settings):
    model = narrow_model().eval()
    adapter = driftlaw.adapt(model, method, **settings)
    before = state_of(adapter)["modes"]
    image = make_images(count=1)
    with pytest.warns(UserWarning, match="has no variance"):
        logits = adapter(image)
    torch.testing.assert_close(logits, model(image).detach())
    assert adapter.steps == 0
    assert state_of(adapter)["modes"] == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adapter(make_images(1)).isfinite().all()
    assert adapter.steps == 1


@pytest.mark.parametrize("statistics", ["batch", "mixed"])
def test_batches_of_one_image_are_warned_about_once(statistics):
    adapter = driftlaw.adapt(tiny_model(), "norm", statistics=statistics)
    with pytest.warns(UserWarning, match="statistics of a single image are poor. Set statistics='auto'") as caught:
        results = [adapter(make_images(number, count=1)) for number in range(3)]
    assert all(logits.shape == (1, 4) for logits in results)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    without_batch_norm = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(784, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        driftlaw.adapt(without_batch_norm)(make_images(count=1))
        driftlaw.adapt(tiny_model(), "source")(make_images(count=1))
        driftlaw.adapt(tiny_model(), "tent", statistics="window")(make_images(count=1))


def test_mixed_statistics_allow_updates_on_one_image():
    adapter = driftlaw.adapt(narrow_model(), "tent", statistics="mixed")
    with pytest.warns(UserWarning, match="single image"):
        assert adapter(make_images(count=1)).isfinite().all()
    assert adapter.steps == 1


def test_one_image_without_any_statistics_is_refused():
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten())
    with pytest.raises(UsageError, match=r"the model stores none\. Use larger batches"):
        driftlaw.adapt(model, "norm").predict(make_images(count=1))


# --- statistics="auto" ---------------------------------------------------------------------------------------------


def running_estimate(values, mean, variance, share):
    """Return mean and variance after adding a batch with a share, and what a layer normalizes with."""
    batch_mean, batch_variance = values.mean((0, 2, 3)), values.var((0, 2, 3), correction=0)
    second_moment = (1 - share) * (variance + mean**2) + share * (batch_variance + batch_mean**2)
    mean = (1 - share) * mean + share * batch_mean
    return mean, second_moment - mean**2


@pytest.mark.small_batches
def test_small_batches_are_normalized_with_running_statistics():
    model = small_model().double().eval()
    adapter = driftlaw.adapt(model, "norm", window=40)
    convolution, norm = model[0], model[1]
    mean, variance = norm.running_mean, norm.running_var
    for number, count in enumerate((1, 5, 31)):
        images = make_images(number, count=count, dtype=torch.float64)
        values = convolution(images).detach()
        mean, variance = running_estimate(values, mean, variance, 1 - (1 - 1 / 40) ** count)
        used = 0.8 * mean + 0.2 * norm.running_mean, 0.8 * variance + 0.2 * norm.running_var
        shape = (1, -1, 1, 1)
        scaled = (values - used[0].view(shape)) / (used[1].view(shape) + norm.eps).sqrt()
        expected = model[2:](scaled * norm.weight.view(shape) + norm.bias.view(shape)).detach()
        torch.testing.assert_close(adapter.predict(images), expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(adapter(images), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.small_batches
@pytest.mark.parametrize("method", ["norm", "tent", "law", "cotta"])
def test_full_batches_give_the_same_bits_as_batch_statistics(method):
    batches = [make_images(number, count=32) for number in range(2)]
    auto, batch = (driftlaw.adapt(tiny_model(), method, statistics=kind) for kind in ("auto", "batch"))
    for images in batches:
        assert torch.equal(auto(images), batch(images))
    assert differences(dict(auto.model.named_parameters()), dict(batch.model.named_parameters())) == []
    assert torch.equal(auto.predict(batches[0]), batch.predict(batches[0]))


@pytest.mark.small_batches
def test_collected_images_are_one_ordinary_update():
    images = make_images(count=64)
    adapter, whole = driftlaw.adapt(tiny_model(), "tent"), driftlaw.adapt(tiny_model(), "tent", statistics="batch")
    for part in images.split(16):
        assert adapter.steps == 0
        adapter(part)
    whole(images)
    assert adapter.steps == 1
    assert differences(dict(adapter.model.named_parameters()), dict(whole.model.named_parameters())) == []


@pytest.mark.small_batches
@pytest.mark.parametrize(
    ("count", "settings", "batches"), [(1, {"window": 5}, 5), (24, {}, 3), (31, {}, 3), (7, {"minimum_batch": 70}, 10)]
)
def test_an_update_waits_for_enough_images(count, settings, batches):
    adapter = driftlaw.adapt(tiny_model(), "tent", **settings)
    for number in range(2 * batches):
        adapter(make_images(number, count=count))
        assert adapter.steps == (number + 1) // batches


@pytest.mark.small_batches
@pytest.mark.parametrize("method", ["norm", "tent", "law", "cotta"])
@pytest.mark.parametrize("sizes", [(3, 5, 2, 7), (32, 3, 4, 40, 2)], ids=str)
def test_a_continued_state_and_a_reset_give_the_same_bits_with_small_batches(method, sizes):
    def make():
        return driftlaw.adapt(tiny_model(), method, window=8, seed=3)

    first, second = make(), make()
    start = state_of(first)
    results = [first(make_images(number, count=count)) for number, count in enumerate(sizes)]
    for number, count in enumerate(sizes):  # each step by an adapter that was just loaded
        loaded = make()
        loaded.load_state_dict(second.state_dict())
        second = loaded
        assert torch.equal(second(make_images(number, count=count)), results[number])
    assert differences(state_of(first), state_of(second)) == []
    first.reset()
    assert differences(start, state_of(first)) == []
    assert torch.equal(first(make_images(0, count=sizes[0])), results[0])


@pytest.mark.small_batches
def test_the_small_last_batch_of_a_domain_uses_the_images_before_it():
    adapter = driftlaw.adapt(tiny_model(), "norm")
    full, small = make_images(0, count=64), make_images(1, count=8)
    adapter(full)
    logits = adapter(small)
    mixed = driftlaw.adapt(tiny_model(), "norm", statistics="mixed", source_share=0.2)
    torch.testing.assert_close(logits, mixed(torch.cat([full, small]))[-8:], rtol=1e-5, atol=1e-5)
    assert adapter.steps == 1


@pytest.mark.small_batches
def test_predict_equals_a_small_step_and_changes_nothing():
    adapter = driftlaw.adapt(tiny_model(), "law", overlap=False)
    for count in (40, 3, 5):
        images = make_images(count, count=count)
        before = state_of(adapter)
        predicted = adapter.predict(images)
        assert differences(before, state_of(adapter)) == []
        assert torch.equal(adapter(images), predicted)


@pytest.mark.small_batches
def test_models_without_stored_statistics_use_recent_images():
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten(), nn.Linear(768, 4))
    adapter = driftlaw.adapt(model, "norm")
    images = make_images(count=6)
    results = [adapter(image[None]) for image in images]
    whole = driftlaw.adapt(model, "norm", statistics="batch")
    torch.testing.assert_close(results[-1], whole(images)[-1:])


@pytest.mark.small_batches
def test_small_batches_without_batch_norm_are_predicted_by_the_model_and_collected():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(784, 4)).eval()
    adapter = driftlaw.adapt(model, "tent", window=8)
    results = [adapter(make_images(number, count=4)) for number in range(2)]
    torch.testing.assert_close(torch.cat(results), model(torch.cat([make_images(0, count=4), make_images(1, count=4)])))
    assert adapter.steps == 1


@pytest.mark.small_batches
def test_images_of_another_size_start_a_new_collection():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    adapter = driftlaw.adapt(model, "tent", window=6)
    adapter(make_images(count=5))
    adapter(torch.rand(5, 3, 20, 20))
    assert adapter.steps == 0
    adapter(torch.rand(1, 3, 20, 20))
    assert adapter.steps == 1


@pytest.mark.parametrize("name", ["window", "minimum_batch"])
def test_numbers_of_images_that_no_memory_can_hold_are_refused(name):
    with pytest.raises(UsageError, match=f"{name} = {2**63}: Input should be less than or equal to 100000"):
        driftlaw.adapt(tiny_model(), "tent", **{name: 2**63})
