"""The one door: checks the images, cuts them into chunks that fit the device, corrupts each chunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral

import torch
from torch import Tensor

from driftlaw.corruptions import blur, digital, jpeg, noise, spatter, weather
from driftlaw.corruptions.linear import GREY_BITS, on_grid
from driftlaw.corruptions.registry import SEVERITIES, Corruption, Numbers, find_corruption
from driftlaw.corruptions.rng import Draws
from driftlaw.errors import UsageError, collected

Function = Callable[[Tensor, Numbers, Draws], Tensor]

FUNCTIONS: dict[str, Function] = {
    function.__name__: function
    for function in (
        noise.gaussian_noise, noise.shot_noise, noise.impulse_noise,
        blur.defocus_blur, blur.glass_blur, blur.motion_blur, blur.zoom_blur,
        weather.snow, weather.frost, weather.fog, weather.brightness,
        digital.contrast, digital.elastic_transform, digital.pixelate, jpeg.jpeg_compression,
        noise.speckle_noise, blur.gaussian_blur, spatter.spatter, digital.saturate,
    )
}  # fmt: skip

# Values a chunk: on a CPU what stays in the cache through a corruption's dozen passes, on a GPU what fills it.
_CPU_VALUES = 2**18
# A batch of fewer values is not worth a second thread.
_SHARED_VALUES = 2**16
_GPU_VALUES = 2**25
_GPU_BYTES_A_VALUE = 256


@torch.no_grad()
def corrupt(
    images: Tensor, name: str, severity: int, *, seed: int = 0, indices: Tensor | Sequence[int] | None = None
) -> Tensor:
    """Return the images corrupted; the images handed in stay as they are.

    Images with no side over 64 pixels take CIFAR-C's numbers, larger ones ImageNet-C's. uint8 images are cut to whole
    grey levels as the original archives were; float images keep what lies between. The corruptions that the originals
    run on a stored picture (motion_blur, pixelate, jpeg_compression) give whole grey levels for float images too.

    Args:
        images: (n, 3, h, w), float in [0, 1] or uint8.
        name: one of ``list_corruptions("all")``.
        severity: 1 to 5.
        seed: another seed, another corruption.
        indices: the number of each image in its dataset (0, 1, … unless told). An image gets the same corruption
            whatever batch it comes in, as long as its number and the seed are the same.

    Returns:
        A new tensor of the same shape, dtype and device.

    Raises:
        UsageError: something does not fit; the message lists all of it.
    """
    corruption = find_corruption(name)
    numbered = _checked(images, severity, seed, indices)
    device = images.device if images.device.type in ("cpu", "cuda") else torch.device("cpu")
    result = torch.empty_like(images, memory_format=torch.contiguous_format)
    inference = torch.is_inference_mode_enabled()

    def work(chunk: slice) -> None:
        # Both modes belong to a thread, and this may run in another one than the caller's.
        with torch.inference_mode(inference), torch.no_grad():
            draws = Draws(seed, name, severity, numbered[chunk].to(device))
            result[chunk] = _corrupt_chunk(images[chunk].to(device), corruption, severity, draws)

    _work_off(work, _chunks(images), device)
    return result


def _work_off(work: Callable[[slice], None], chunks: list[slice], device: torch.device) -> None:
    """Do the work chunk by chunk; on a CPU with several threads each takes whole chunks.

    Torch would otherwise share every single operation between its threads, and on a busy machine one that waits for
    its turn holds up all the others thousands of times.
    """
    allowed = torch.get_num_threads()
    threads = min(allowed, len(chunks)) if device.type == "cpu" else 1
    if threads < 2:
        for chunk in chunks:
            work(chunk)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(work, chunks))
    finally:
        # A thread's own setting, but also what torch hands to threads that are yet to come.
        torch.set_num_threads(allowed)


def _corrupt_chunk(images: Tensor, corruption: Corruption, severity: int, draws: Draws) -> Tensor:
    numbers = corruption.at(severity, *images.shape[-2:])
    grey = images.to(torch.float32).contiguous()
    if images.dtype != torch.uint8:
        grey = on_grid(grey * 255, GREY_BITS)
    changed = FUNCTIONS[corruption.name](grey, numbers, draws).clamp_(0, 255)
    if images.dtype == torch.uint8:
        return changed.to(torch.uint8)
    return (changed / 255).to(images.dtype)


def _chunks(images: Tensor) -> list[slice]:
    """Cut the batch into even chunks that fit the device, as many on a CPU as keep all threads busy."""
    limit, workers = _CPU_VALUES, torch.get_num_threads()
    if images.device.type == "cuda":
        memory = torch.cuda.get_device_properties(images.device).total_memory
        limit, workers = min(_GPU_VALUES, memory // _GPU_BYTES_A_VALUE), 1
    fewest = math.ceil(images.numel() / limit)
    rounds = math.ceil(fewest / workers) * workers if images.numel() > _SHARED_VALUES else fewest
    size = max(1, math.ceil(len(images) / max(1, rounds)))
    return [slice(start, start + size) for start in range(0, len(images), size)]


def _checked(images: Tensor, severity: int, seed: int, indices: Tensor | Sequence[int] | None) -> Tensor:
    """Return the images' numbers, int64 (n,), or raise one error with all that is wrong."""
    if not isinstance(images, Tensor):
        raise UsageError(f"images are a torch tensor (n, 3, h, w), found {type(images).__name__}")
    problems = [*_image_problems(images), *_argument_problems(severity, seed)]
    numbered = _numbered(images, indices, problems)
    if problems:
        raise collected("images cannot be corrupted:", problems)
    return numbered


def _image_problems(images: Tensor) -> list[str]:
    problems = []
    if images.ndim != 4 or images.shape[1] != 3:
        advice = "; for grey images: images.expand(-1, 3, -1, -1)" if images.ndim == 4 and images.shape[1] == 1 else ""
        problems.append(f"expected images of shape (n, 3, h, w), found {tuple(images.shape)}{advice}")
    elif 0 in images.shape[1:]:
        problems.append(f"expected images of at least one pixel, found {tuple(images.shape)}")
    if not (images.is_floating_point() or images.dtype == torch.uint8):
        problems.append(f"expected float images in [0, 1] or uint8 images, found {images.dtype}")
    elif images.is_floating_point() and images.numel():
        problems += _range_problems(images)
    return problems


def _range_problems(images: Tensor) -> list[str]:
    low, high = (float(bound) for bound in torch.aminmax(images.detach()))
    if low != low or high != high:
        return ["the images hold NaN"]
    if low < 0 or high > 1:
        return [f"expected float images in [0, 1], found values from {low:g} to {high:g}: divide by 255, or pass uint8"]
    return []


def _argument_problems(severity: int, seed: int) -> list[str]:
    problems = []
    if not _is_whole(severity) or severity not in SEVERITIES:
        problems.append(f"severity is 1, 2, 3, 4 or 5, found {severity!r}")
    if not _is_whole(seed):
        problems.append(f"seed is a whole number, found {seed!r}")
    return problems


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _numbered(images: Tensor, indices: Tensor | Sequence[int] | None, problems: list[str]) -> Tensor:
    count = len(images) if images.ndim else 0
    if indices is None:
        return torch.arange(count)
    numbered = torch.as_tensor(indices)
    if numbered.is_floating_point() or numbered.is_complex() or numbered.dtype == torch.bool:
        problems.append(f"indices are whole numbers, found {numbered.dtype}")
    if tuple(numbered.shape) != (count,):
        problems.append(f"expected one index an image, shape ({count},), found {tuple(numbered.shape)}")
    return numbered.to(torch.int64)
