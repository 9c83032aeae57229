"""AugMix on the device, compared with Pillow."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.train.augment import crop_and_flip
from benchmarks.train.augmix import DEPTH, NO_OPERATION, OPERATIONS, WIDTH, Chains, augmix
from driftlaw.datasets import load_dataset
from tests.reference import augmix as reference


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def apply_operations(images, operations, levels, signs):
    """Return uint8 images, each with one operation applied: AugMix with one chain of one step and no clean image."""
    ones = torch.ones(len(images))
    chains = Chains(operations[None, None], levels[None, None], signs[None, None], ones[None], ones)
    return (augmix(images, chains) * 255).round().to(torch.uint8)


@pytest.fixture(scope="module")
def photographs():
    pixels = load_dataset("cifar10-embedded").images(np.arange(24))
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()


def random_levels(count, highest=10.0, seed=1):
    rng = generator(seed)
    levels = 0.1 + (highest - 0.1) * torch.rand(count, generator=rng)
    return levels, torch.where(torch.rand(count, generator=rng) < 0.5, -1.0, 1.0)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_equals_pillows(photographs, name):
    levels, signs = random_levels(len(photographs))
    numbers = torch.full((len(photographs),), OPERATIONS.index(name))
    result = apply_operations(photographs, numbers, levels, signs)
    expected = torch.stack(
        [
            reference.operate_on_pixels(image, name, float(level), float(sign))
            for image, level, sign in zip(photographs, levels, signs, strict=True)
        ]
    )
    difference = (result.int() - expected.int()).abs()
    if name in ("rotate", "shear_x", "shear_y"):  # float32 instead of float64: the last bit can change a rounding
        assert difference.max() <= 1
        assert (difference > 0).float().mean() < 0.005
    else:
        assert torch.equal(result, expected)


@pytest.mark.parametrize("name", ["autocontrast", "equalize", "translate_x", "translate_y"])
@pytest.mark.parametrize("values", [[7], [0, 255], [10, 11, 12], list(range(256))])
def test_flat_and_oblong_images_equal_pillows_too(name, values):
    image = torch.tensor(values, dtype=torch.uint8).repeat(768)[: 3 * 12 * 20].view(1, 3, 12, 20)
    levels, signs = torch.tensor([9.0]), torch.tensor([-1.0])
    result = apply_operations(image, torch.tensor([OPERATIONS.index(name)]), levels, signs)
    assert torch.equal(result[0], reference.operate_on_pixels(image[0], name, 9.0, -1.0))


def test_an_ended_chain_changes_nothing(photographs):
    levels, signs = random_levels(len(photographs))
    assert torch.equal(
        apply_operations(photographs, torch.full((len(photographs),), NO_OPERATION), levels, signs), photographs
    )


def test_every_image_has_its_own_operation(photographs):
    levels, signs = random_levels(9)
    mixed = apply_operations(photographs[:1].expand(9, -1, -1, -1), torch.arange(9), levels, signs)
    for number in range(9):
        alone = apply_operations(
            photographs[:1], torch.tensor([number]), levels[number : number + 1], signs[number : number + 1]
        )
        assert torch.equal(mixed[number], alone[0])


def test_the_mixture_equals_the_reference(photographs):
    images = photographs[:6]
    chains = Chains.from_generator(6, generator(3))
    result = augmix(images, chains)
    assert result.dtype == torch.float32
    for number, image in enumerate(images):
        steps = [
            [
                (
                    OPERATIONS[operation],
                    float(chains.levels[step, chain, number]),
                    float(chains.signs[step, chain, number]),
                )
                for step in range(DEPTH)
                if (operation := int(chains.operations[step, chain, number])) != NO_OPERATION
            ]
            for chain in range(WIDTH)
        ]
        weights = chains.weights[:, number].tolist()
        expected = reference.mix(image, steps, weights, float(chains.mix_weight[number]))
        difference = (result[number].double() - expected).abs()
        assert difference.max() < 0.1  # later operations of a chain can amplify a rounding error
        assert difference.mean() < 3e-4


def test_random_parameters_have_the_published_shapes_and_ranges():
    chains = Chains.from_generator(4000, generator())
    lengths = (chains.operations != NO_OPERATION).sum(0)
    ended = chains.operations == NO_OPERATION
    assert not ended[0].any()
    assert (ended[1:] >= ended[:-1]).all()
    for length in (1, 2, 3):
        assert 0.31 < (lengths == length).float().mean() < 0.36
    first = torch.bincount(chains.operations[0].flatten(), minlength=9) / chains.operations[0].numel()
    assert len(first) == 9
    assert ((first > 0.1) & (first < 0.122)).all()
    assert 0.1 <= chains.levels.min() < 0.11
    assert 2.99 < chains.levels.max() <= 3
    assert set(chains.signs.unique().tolist()) == {-1.0, 1.0}
    torch.testing.assert_close(chains.weights.sum(0), torch.ones(4000))
    # variance of a weight in a Dirichlet distribution with three concentrations of 1
    torch.testing.assert_close(chains.weights.var(), torch.tensor(1 / 18), rtol=0.05, atol=0)
    assert abs(float(chains.mix_weight.mean()) - 0.5) < 0.02
    assert abs(float(chains.mix_weight.var()) - 1 / 12) < 0.005


def test_only_the_generator_determines_the_result_and_the_input_stays(photographs):
    before = photographs.clone()
    torch.manual_seed(1)
    one = augmix(photographs, Chains.from_generator(len(photographs), generator(2)))
    torch.manual_seed(2)
    assert torch.equal(augmix(photographs, Chains.from_generator(len(photographs), generator(2))), one)
    assert not torch.equal(augmix(photographs, Chains.from_generator(len(photographs), generator(3))), one)
    assert torch.equal(photographs, before)
    assert one.min() >= 0
    assert one.max() <= 1 + 1e-6


def test_an_image_is_mixed_the_same_in_any_batch(photographs):
    chains = Chains.from_generator(len(photographs), generator(5))
    together = augmix(photographs, chains)
    for start in range(0, len(photographs), 7):
        part = slice(start, start + 7)
        few = Chains(*(getattr(chains, name)[..., part] for name in chains.__dataclass_fields__))
        assert torch.equal(augmix(photographs[part], few), together[part])


def test_the_memory_format_does_not_matter(photographs):
    chains = Chains.from_generator(len(photographs), generator(6))
    other = photographs.contiguous(memory_format=torch.channels_last)
    assert torch.equal(augmix(other, chains), augmix(photographs, chains))


class Operations(TorchDispatchMode):
    """Dispatch mode that records the names of all tensor operations."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


def test_no_operation_synchronizes_host_and_device(photographs):
    rng = generator()
    with Operations() as operations:
        cropped = crop_and_flip(photographs, rng, padding=4, flip=True)
        augmix(cropped, Chains.from_generator(len(cropped), rng))
    assert "grid_sampler_2d" in operations.names
    # a tensor made from a Python number, and a tensor read as a number: each would synchronize with a GPU
    assert not {"scalar_tensor", "lift_fresh", "_local_scalar_dense", "nonzero"} & set(operations.names)
    assert len(operations.names) < 1500


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_images(photographs):
    chains = Chains.from_generator(len(photographs), generator())
    on_gpu = Chains(*(getattr(chains, name).cuda() for name in chains.__dataclass_fields__))
    difference = (augmix(photographs.cuda(), on_gpu).cpu() - augmix(photographs, chains)).abs()
    assert difference.mean() < 3e-4
