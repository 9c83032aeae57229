"""corrupt(): independence of batches, chunks, threads and memory formats, and checks of its arguments."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.corruptions import CORRUPTIONS, corrupt, list_corruptions, pipeline
from driftlaw.datasets import load_dataset
from driftlaw.errors import UsageError

ALL = list_corruptions("all")
RANDOM = [corruption.name for corruption in CORRUPTIONS if corruption.random]


@pytest.fixture(scope="module")
def images():
    pixels = load_dataset("cifar10-embedded").images(np.arange(24))
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


@pytest.fixture(scope="module")
def large(images):
    return torch.nn.functional.interpolate(images[:2].float(), size=(224, 224), mode="bilinear").to(torch.uint8)


@pytest.mark.parametrize("name", ALL)
def test_a_float_image_is_corrupted_the_same_in_any_batch(name, images):
    floats = images / 255
    whole = corrupt(floats, name, 3)
    assert torch.equal(corrupt(floats[5:9], name, 3, indices=[5, 6, 7, 8]), whole[5:9])


@pytest.mark.parametrize("name", ALL)
def test_the_result_does_not_depend_on_chunks(name, images, monkeypatch):
    whole = corrupt(images, name, 4)
    monkeypatch.setattr(pipeline, "_CPU_CHUNK_VALUES", 5 * images[0].numel())
    assert torch.equal(corrupt(images, name, 4), whole)


def test_two_threads_give_the_same_bits_and_restore_the_number_of_threads(images, monkeypatch):
    monkeypatch.setattr(pipeline, "_CPU_CHUNK_VALUES", 5 * images[0].numel())
    expected = corrupt(images, "snow", 3)
    torch.set_num_threads(2)
    try:
        assert torch.equal(corrupt(images, "snow", 3), expected)
        with torch.inference_mode():
            assert torch.equal(corrupt(images, "snow", 3), expected)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("name", RANDOM)
def test_another_seed_gives_another_result(name, images):
    assert not torch.equal(corrupt(images, name, 3, seed=8), corrupt(images, name, 3, seed=7))


@pytest.mark.parametrize("name", RANDOM)
def test_images_with_different_indices_get_different_corruptions(name, images):
    twins = corrupt(images[:1].expand(2, -1, -1, -1), name, 4)
    assert not torch.equal(twins[0], twins[1])


@pytest.mark.parametrize("name", ALL)
def test_float_and_uint8_agree_within_one_gray_level(name, images):
    whole = corrupt(images, name, 3).float()
    floats = corrupt(images / 255, name, 3) * 255
    assert (floats - whole).min() > -0.01
    assert (floats - whole).max() < 1.01


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ALL)
def test_any_float_dtype_comes_back_in_its_own_dtype_and_range(name, dtype, images):
    changed = corrupt((images[:3] / 255).to(dtype), name, 3)
    assert changed.dtype == dtype
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert changed.float().sub(corrupt(images[:3] / 255, name, 3)).abs().mean() < 0.02


@pytest.mark.parametrize("name", ALL)
def test_large_images_keep_their_shape_and_change(name, large):
    for severity in (1, 5):
        changed = corrupt(large, name, severity)
        assert changed.shape == large.shape
        assert not torch.equal(changed, large)
    assert torch.equal(corrupt(large[1:], name, 5, indices=[1]), changed[1:])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_large_images_are_encoded_as_the_published_files(dtype, large):
    images = large[:, :, :72, :80] if dtype == torch.uint8 else large[:, :, :72, :80] / 255
    plain = corrupt(images, "contrast", 5, encoding="none")
    pixels = (plain if dtype == torch.uint8 else (plain * 255).floor().to(torch.uint8)).permute(0, 2, 3, 1).numpy()
    expected = []
    for image in pixels:
        Image.fromarray(image).save(file := io.BytesIO(), "JPEG", quality=85)
        expected.append(torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1))
    encoded = corrupt(images, "contrast", 5)
    difference = (encoded if dtype == torch.uint8 else encoded * 255).float() - torch.stack(expected)
    assert difference.abs().mean() < 0.3  # 0 with libjpeg-turbo, as in test_jpeg.py
    assert (plain - encoded.to(plain.dtype)).abs().max() > 0
    assert torch.equal(corrupt(images, "contrast", 5, encoding="jpeg85"), encoded)


def test_small_images_are_not_encoded(images):
    assert torch.equal(corrupt(images, "contrast", 5), corrupt(images, "contrast", 5, encoding="none"))
    assert not torch.equal(corrupt(images, "contrast", 5), corrupt(images, "contrast", 5, encoding="jpeg85"))


def test_an_unknown_encoding_is_refused(images):
    with pytest.raises(UsageError, match=r"Unknown encoding 'jpeg'\. Did you mean 'jpeg85'"):
        corrupt(images, "fog", 1, encoding="jpeg")


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (40, 17), (64, 64), (65, 3)])
@pytest.mark.parametrize("name", ALL)
def test_any_size_works(name, size):
    images = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0))
    changed = corrupt(images, name, 5)
    assert changed.shape == images.shape
    assert changed.isfinite().all()


# Their published parameters are not monotonic in their effect: some increase while others decrease.
NOT_MONOTONIC = ["glass_blur", "frost", "elastic_transform", "spatter", "saturate"]


@pytest.mark.parametrize("name", [name for name in ALL if name not in NOT_MONOTONIC])
def test_the_change_grows_with_the_severity(name, images):
    change = [(corrupt(images, name, s).float() - images.float()).abs().mean().item() for s in (1, 3, 5)]
    assert change[0] < change[1] < change[2]


@pytest.mark.parametrize("name", ALL)
def test_the_memory_format_does_not_matter_and_the_input_is_not_changed(name, images):
    few = images[:6]
    before = few.clone()
    expected = corrupt(few, name, 3)
    assert torch.equal(corrupt(few.to(memory_format=torch.channels_last), name, 3), expected)
    assert torch.equal(corrupt(torch.stack([few, few], -1)[..., 0], name, 3), expected)
    assert torch.equal(few, before)
    floats = few / 255
    kept = floats.clone()
    corrupt(floats, name, 3)
    assert torch.equal(floats, kept)


def test_an_empty_batch_stays_empty():
    assert corrupt(torch.empty(0, 3, 32, 32), "fog", 1).shape == (0, 3, 32, 32)


def test_inputs_that_require_grad_and_inference_mode_work(images):
    tracked = (images[:2] / 255).requires_grad_()
    assert not corrupt(tracked, "fog", 2).requires_grad
    with torch.inference_mode():
        inside = corrupt(images, "zoom_blur", 3)
    assert torch.equal(corrupt(images, "zoom_blur", 3), inside)


def test_one_error_lists_all_problems(images):
    with pytest.raises(UsageError) as error:
        corrupt(images.float(), "fog", 6, seed="x", indices=[1, 2])
    for word in ("[0, 1]", "severity is 6", "seed is 'x'", "one index per image"):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (torch.zeros(2, 1, 8, 8), "expand"),
        (torch.zeros(3, 8, 8), r"\(n, 3, h, w\)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), "int64"),
        (torch.full((2, 3, 8, 8), float("nan")), "NaN"),
        (torch.full((2, 3, 8, 8), -0.5), "-0.5"),
        (torch.zeros(2, 3, 0, 8), "one pixel"),
        (np.zeros((2, 3, 8, 8)), "ndarray"),
    ],
)
def test_unsuitable_images_are_refused_with_a_reason(bad, word):
    with pytest.raises(UsageError, match=word):
        corrupt(bad, "contrast", 1)


def test_an_unknown_corruption_gets_a_suggestion(images):
    with pytest.raises(UsageError, match="Did you mean 'glass_blur'"):
        corrupt(images, "glas_blur", 1)


@pytest.mark.parametrize("indices", [b"0", "ab", [2**70, 0], object()])
def test_indices_that_are_no_numbers_are_refused(images, indices):
    with pytest.raises(UsageError, match="indices are not a list of integers"):
        corrupt(images[:2], "fog", 1, indices=indices)


def test_sparse_nested_and_very_short_floats_are_refused(images):
    unit = images[:2].float() / 255
    for wrong in (
        unit.to_sparse(),
        torch.nested.nested_tensor(list(unit)),
        unit.to("meta"),
        unit.to(torch.float8_e5m2),
    ):
        with pytest.raises(UsageError, match=r"dense|float8"):
            corrupt(wrong, "fog", 1)


def test_indices_must_be_integers(images):
    with pytest.raises(UsageError, match="expected integers"):
        corrupt(images[:2], "fog", 1, indices=[0.5, 1.5])


@pytest.mark.parametrize("encoding", ["none", "jpeg85"])
def test_a_combination_applies_corruptions_one_after_the_other(encoding, images):
    floats = images / 255
    blurred = corrupt(floats, "gaussian_blur", 4, encoding="none")
    combined = corrupt(floats, "gaussian_blur+speckle_noise", 4, encoding=encoding)
    expected = corrupt(blurred, "speckle_noise", 4, encoding=encoding)
    # The second call of a sequence rounds its float input to multiples of 1/256 of a gray level.
    assert (combined - expected).abs().max() < (0.01 if encoding == "none" else 20) / 255
    assert not torch.allclose(combined, corrupt(floats, "speckle_noise+gaussian_blur", 4, encoding=encoding), atol=0.05)


def test_an_unknown_part_of_a_combination_is_named(images):
    with pytest.raises(UsageError, match="Unknown corruption 'frog'"):
        corrupt(images, "fog+frog", 3)
