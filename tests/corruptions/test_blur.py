"""Blurs: properties beyond their definition."""

import torch

from driftlaw.corruptions import blur, corrupt
from driftlaw.corruptions.rng import CounterRNG


def random_images(*size):
    return torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_bands_and_the_general_method_agree(monkeypatch):
    images = random_images(24, 30)
    quick = [corrupt(images / 255, name, 4) for name in ("zoom_blur", "defocus_blur")]
    monkeypatch.setattr(blur, "_DENSE_PIXELS", 0)
    general = [corrupt(images / 255, name, 4) for name in ("zoom_blur", "defocus_blur")]
    torch.testing.assert_close(quick, general, atol=1e-3, rtol=0)


def test_glass_blur_passes_on_what_an_earlier_neighbour_copied():
    rng = CounterRNG(0, "glass_blur", 5, torch.arange(3))
    height, width, reach = 21, 18, 4
    sources = blur._glass_source_indices(height, width, reach, rng, 0)
    jumps = rng.words("jumps 0", 2 * height * width, torch.int16).int().view(3, 2, height, width)
    jumps = ((jumps + 2**15) * 2 * reach >> 16) - reach
    for image in range(3):
        pixels = torch.arange(height * width).view(height, width)
        for h in range(height - reach, reach, -1):
            for w in range(width - reach, reach, -1):
                pixels[h, w] = pixels[h + jumps[image, 0, h, w], w + jumps[image, 1, h, w]]
        assert torch.equal(sources[image], pixels.view(-1))


def test_motion_blur_gives_whole_gray_levels():
    values = corrupt(random_images(32, 32).double() / 255, "motion_blur", 3) * 255
    assert (values - values.round()).abs().max() < 1e-4
