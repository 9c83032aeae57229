"""Corruption of a batch: checks the arguments, splits the batch into chunks and corrupts each of them."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from numbers import Integral

import torch
from torch import Tensor

from driftlaw.corruptions import blur, digital, frost, jpeg, noise, spatter, weather
from driftlaw.corruptions.linear import GRAY_BITS, quantize
from driftlaw.corruptions.registry import (
    ENCODINGS,
    SEVERITIES,
    Encoding,
    Parameters,
    find_corruptions,
    resolve_encoding,
)
from driftlaw.corruptions.rng import CounterRNG
from driftlaw.errors import UsageError, combined_error, unknown_name

Function = Callable[[Tensor, Parameters, CounterRNG], Tensor]

FUNCTIONS: dict[str, Function] = {
    function.__name__: function
    for function in (
        noise.gaussian_noise, noise.shot_noise, noise.impulse_noise,
        blur.defocus_blur, blur.glass_blur, blur.motion_blur, blur.zoom_blur,
        weather.snow, frost.frost, weather.fog, weather.brightness,
        digital.contrast, digital.elastic_transform, digital.pixelate, jpeg.jpeg_compression,
        noise.speckle_noise, blur.gaussian_blur, spatter.spatter, digital.saturate,
    )
}  # fmt: skip

_CPU_CHUNK_VALUES = 2**18  # stays in the cache through the dozen operations of a corruption
_GPU_CHUNK_VALUES = 2**25  # fills a GPU
_GPU_BYTES_PER_VALUE = 256
_MIN_THREADED_VALUES = 2**16  # a smaller batch is not worth a second thread


@torch.no_grad()
def corrupt(
    images: Tensor,
    name: str,
    severity: int,
    *,
    seed: int = 0,
    indices: Tensor | Sequence[int] | None = None,
    encoding: Encoding = "auto",
) -> Tensor:
    """Return a corrupted copy of the images.

    Images with no side over 64 pixels use CIFAR-C's parameters, larger ones ImageNet-C's. Larger ones are also encoded
    as the published files of ImageNet-C are: as JPEG of quality 85, also after jpeg_compression. This matters under
    low contrast. uint8 images are rounded down to whole gray levels, as in the published files; float images keep the
    fractions if they are not encoded. The original code applies motion_blur, pixelate and jpeg_compression to 8-bit
    images, so these return whole gray levels for float images too.

    Args:
        images: (n, 3, h, w), float in [0, 1] or uint8.
        name: one of ``list_corruptions("all")``, or several of them that are applied one after the other, such as
            ``spatter+gaussian_blur``.
        severity: 1 to 5.
        seed: seed of all randomness.
        indices: (n,), index of each image in its dataset; 0, 1, … if omitted. An image with the same index and seed
            gets the same corruption in any batch.
        encoding: ``jpeg85``, ``none``, or ``auto``: ``jpeg85`` if a side is longer than 64 pixels, else ``none``.

    Returns:
        New tensor of the same shape, dtype and device.

    Raises:
        UsageError: if an argument is invalid. The message lists all problems.

    >>> images = torch.rand(4, 3, 32, 32)
    >>> foggy = corrupt(images, "fog", severity=3)
    >>> torch.equal(corrupt(images[2:], "fog", severity=3, indices=[2, 3]), foggy[2:])
    True
    """
    corruptions = find_corruptions(name)
    if encoding not in ENCODINGS:
        raise unknown_name("encoding", str(encoding), ENCODINGS)
    index_tensor = _check_arguments(images, severity, seed, indices)
    encoded = resolve_encoding(encoding, *images.shape[-2:]) == "jpeg85"
    device = images.device if images.device.type in ("cpu", "cuda") else torch.device("cpu")
    result = torch.empty_like(images, memory_format=torch.contiguous_format)
    inference = torch.is_inference_mode_enabled()

    def corrupt_chunk(chunk: slice) -> None:
        # Both modes are thread-local, and this may run in a worker thread.
        with torch.inference_mode(inference), torch.no_grad():
            chunk_indices = index_tensor[chunk].to(device)
            gray_levels = images[chunk].to(device).to(torch.float32).contiguous()
            if images.dtype != torch.uint8:
                gray_levels = quantize(gray_levels * 255, GRAY_BITS)
            for corruption in corruptions:
                rng = CounterRNG(seed, corruption.name, severity, chunk_indices)
                parameters = corruption.parameters(severity, *images.shape[-2:])
                gray_levels = FUNCTIONS[corruption.name](gray_levels, parameters, rng).clamp_(0, 255)
            if encoded:
                gray_levels = jpeg.encode_and_decode(gray_levels.floor_(), 85).clamp_(0, 255)
            result[chunk] = gray_levels if images.dtype == torch.uint8 else (gray_levels / 255).to(images.dtype)

    _run_chunks(corrupt_chunk, _chunks(images), device)
    return result


def _run_chunks(function: Callable[[slice], None], chunks: list[slice], device: torch.device) -> None:
    """Call ``function`` on every chunk, in several threads on a CPU.

    Each thread runs whole chunks with one torch thread. If torch parallelised every small operation instead, its
    threads would wait for each other thousands of times on a busy machine.
    """
    available = torch.get_num_threads()
    threads = min(available, len(chunks)) if device.type == "cpu" else 1
    if threads < 2:
        for chunk in chunks:
            function(chunk)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(function, chunks))
    finally:
        # set_num_threads in a worker also sets the default of threads that are created later.
        torch.set_num_threads(available)


def _chunks(images: Tensor) -> list[slice]:
    """Split the batch into even chunks that fit the device; on a CPU a multiple of the number of threads."""
    limit, workers = _CPU_CHUNK_VALUES, torch.get_num_threads()
    if images.device.type == "cuda":
        memory = torch.cuda.get_device_properties(images.device).total_memory
        limit, workers = min(_GPU_CHUNK_VALUES, memory // _GPU_BYTES_PER_VALUE), 1
    fewest = math.ceil(images.numel() / limit)
    count = math.ceil(fewest / workers) * workers if images.numel() > _MIN_THREADED_VALUES else fewest
    size = max(1, math.ceil(len(images) / max(1, count)))
    return [slice(start, start + size) for start in range(0, len(images), size)]


def _check_arguments(images: Tensor, severity: int, seed: int, indices: Tensor | Sequence[int] | None) -> Tensor:
    """Return the indices of the images, int64 (n,), or raise one error that lists all problems."""
    if not isinstance(images, Tensor):
        raise UsageError(f"Expected images as a torch tensor (n, 3, h, w), found {type(images).__name__}.")
    if images.is_nested or images.layout != torch.strided or images.is_meta:
        raise UsageError("The images are a sparse, nested or meta tensor. Expected a dense one: use images.to_dense().")
    problems = []
    if images.ndim != 4 or images.shape[1] != 3:
        advice = (
            "; for gray images use images.expand(-1, 3, -1, -1)" if images.ndim == 4 and images.shape[1] == 1 else ""
        )
        problems.append(f"images have shape {tuple(images.shape)}, expected (n, 3, h, w){advice}")
    elif 0 in images.shape[1:]:
        problems.append(f"images have shape {tuple(images.shape)}, expected at least one pixel")
    if not (images.is_floating_point() or images.dtype == torch.uint8) or "float8" in str(images.dtype):
        problems.append(f"images are {images.dtype}, expected float in [0, 1] or uint8")
    elif images.is_floating_point() and images.numel():
        low, high = (float(bound) for bound in torch.aminmax(images.detach()))
        if math.isnan(low) or math.isnan(high):
            problems.append("images contain NaN")
        elif low < 0 or high > 1:
            found = f"images contain values from {low:g} to {high:g}"
            problems.append(f"{found}, expected float in [0, 1]: divide them by 255, or pass uint8")
    if not _is_integer(severity) or severity not in SEVERITIES:
        problems.append(f"severity is {severity!r}, expected 1, 2, 3, 4 or 5")
    if not _is_integer(seed):
        problems.append(f"seed is {seed!r}, expected an integer")
    count = len(images) if images.ndim else 0
    try:
        index_tensor = torch.arange(count) if indices is None else torch.as_tensor(indices)
    except (TypeError, ValueError, RuntimeError) as error:  # text, objects, numbers of more than 64 bits
        index_tensor, problems = torch.arange(count), [*problems, f"indices are not a list of integers ({error})"]
    if index_tensor.is_floating_point() or index_tensor.is_complex() or index_tensor.dtype == torch.bool:
        problems.append(f"indices are {index_tensor.dtype}, expected integers")
    if tuple(index_tensor.shape) != (count,):
        problems.append(f"indices have shape {tuple(index_tensor.shape)}, expected one index per image: ({count},)")
    if problems:
        raise combined_error("The images cannot be corrupted:", problems)
    return index_tensor.to(torch.int64)


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
