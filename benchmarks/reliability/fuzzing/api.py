"""Targets: calls of the public functions."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import driftlaw
from benchmarks.reliability.fuzzing.checker import Checker, Draw
from benchmarks.reliability.fuzzing.networks import BATCH, CLASSES, NETWORKS, SIDE, adapter_of, tiny, train_data
from benchmarks.reliability.fuzzing.values import INFINITY, NAN, any_values, json_values, mostly, seeds
from driftlaw.base import Adapter
from driftlaw.corruptions import list_corruptions
from driftlaw.guard import GuardSettings
from driftlaw.methods import list_methods, registered_methods
from driftlaw.streams.settings import StreamSettings

methods = st.sampled_from(list_methods())
means = st.none() | st.sampled_from(("imagenet", "half", 0.5, (0.5, 0.5, 0.5), [0.4], (0, 0))) | any_values
DTYPES = (
    *(torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int64, torch.bool, torch.complex64),
    torch.float8_e4m3fn,
)


def adapt_with_settings(draw: Draw, checker: Checker, folder: Path) -> None:
    """``driftlaw.adapt`` with unusual settings, seeds, means and presets, then one batch."""
    method = draw(methods)
    fields = list(registered_methods()[method].Config.model_fields)
    names = st.sampled_from((*fields, *fields, "lr", "", "unknown", "mean", "inputs", "preset"))
    settings = draw(st.dictionaries(names, any_values, max_size=2))
    if draw(st.booleans()):
        settings["seed"] = mostly(draw, st.integers(0, 2**40), seeds)
    if draw(st.integers(0, 3)) == 0:
        settings |= {"mean": draw(means), "std": draw(means)}
    if draw(st.integers(0, 7)) == 0:
        settings["preset"] = draw(st.sampled_from(("embedded", "cifar10-c+fast", "nothing", "", "+")) | any_values)
    if draw(st.integers(0, 3)) == 0:
        fields = (*GuardSettings.model_fields, "unknown")
        settings["guard"] = mostly(draw, st.dictionaries(st.sampled_from(fields), any_values, max_size=2), any_values)
    needs = registered_methods()[method].needs_train_data
    usual = st.builds(train_data) if needs else st.none()
    settings["train_data"] = mostly(draw, usual, st.none() | any_values)
    name = method if draw(st.integers(0, 19)) else draw(any_values)
    _adapt_and_step(checker, tiny(), name, settings)


def adapt_models(draw: Draw, checker: Checker, folder: Path) -> None:
    """``driftlaw.adapt`` with unusual models, then a batch. Errors that the model itself raises are allowed."""
    method, name = draw(methods), draw(st.sampled_from(list(NETWORKS)))
    settings = {"train_data": train_data()} if registered_methods()[method].needs_train_data else {}
    channels = 1 if name == "one channel" else 3
    images = torch.rand(BATCH, channels, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    dtype = {"float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}.get(name)
    images = images.to(dtype) if dtype and draw(st.booleans()) else images
    model, allowed = NETWORKS[name](), ()
    try:
        if callable(model) and not isinstance(model, Adapter | type):
            copy.deepcopy(model)(images)
    except Exception as error:
        allowed = (type(error),)
    _adapt_and_step(checker, model, method, settings, images, name, allowed)


def _adapt_and_step(
    checker: Checker,
    model: Any,
    method: Any,
    settings: dict[str, Any],
    images: Any = None,
    note: str = "",
    allowed: tuple[type[Exception], ...] = (),
) -> None:
    def adapt(note: str, settings: dict[str, Any]) -> Any:
        return driftlaw.adapt(model, method, **settings)

    adapter = checker.call(adapt, f"{note} {method!r}", settings)
    if isinstance(adapter, Adapter):
        batch = torch.rand(BATCH, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))

        def step(note: str, settings: dict[str, Any]) -> Any:
            return adapter(batch if images is None else images)

        checker.call(step, f"{note} {method!r}", settings, adapter=adapter, allowed=allowed)


def draw_images(draw: Draw) -> Any:
    """Return a batch of images with an unusual shape, type, layout or contents, or something else."""
    kind = draw(st.sampled_from(("tensor",) * 9 + ("other",)))
    if kind == "other":
        array = np.zeros((BATCH, SIDE, SIDE, 3), np.uint8)
        others = [array, array.tolist(), Image.fromarray(array[0]), [torch.zeros(3, SIDE, SIDE)], (), {}]
        return draw(st.sampled_from(others) | any_values)
    usual = st.sampled_from(((BATCH, 3, SIDE, SIDE),) * 4 + ((1, 3, SIDE, SIDE), (40, 3, SIDE, SIDE), (2, 3, 5, 9)))
    shape = mostly(draw, usual, st.lists(st.sampled_from((0, 1, 2, 3, 4, 5, 9)), max_size=6).map(tuple))
    images = torch.rand(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 9))))
    if images.numel() and mostly(draw, st.just(False), st.just(True)):
        value = draw(st.sampled_from((NAN, INFINITY, -INFINITY, -1e-4, 1.0005, 2.0, 255.0, -3.0, 1e38, 1e-45, 0.5)))
        where = draw(st.sampled_from(("pixel", "image", "all")))
        flat = images.flatten(1) if images.ndim > 1 else images.reshape(1, -1)
        if flat.numel():
            flat[{"pixel": (0, slice(1)), "image": (0,), "all": ()}[where]] = value
        images = flat.reshape(shape)
    dtype = mostly(draw, st.just(torch.float32), st.sampled_from(DTYPES))
    scaled = images * 255 if dtype in (torch.uint8, torch.int64) else images
    images = scaled.nan_to_num(0).clamp(-9, 255).to(dtype) if not dtype.is_floating_point else scaled.to(dtype)
    layout = mostly(draw, st.just("plain"), st.sampled_from(list(LAYOUTS)))
    try:
        return LAYOUTS[layout](images) if layout in LAYOUTS and images.ndim == 4 else images
    except (RuntimeError, NotImplementedError):  # torch has no such tensor of this dtype
        return images


LAYOUTS: dict[str, Any] = {
    "channels last": lambda images: images.contiguous(memory_format=torch.channels_last),
    "expanded": lambda images: images[:1].expand(BATCH, -1, -1, -1) if len(images) else images,
    "strided": lambda images: images[:, :, ::2, ::2],
    "transposed": lambda images: images.transpose(2, 3),
    "flipped": lambda images: images.flip(0).permute(0, 3, 1, 2).permute(0, 2, 3, 1),
    "meta": lambda images: images.to("meta"),
    "sparse": lambda images: images.to_sparse() if images.dtype == torch.float32 else images,
    "requires grad": lambda images: images.requires_grad_() if images.is_floating_point() else images,
    "nested": lambda images: torch.nested.nested_tensor(list(images)) if images.is_floating_point() else images,
    "quantized": lambda images: torch.quantize_per_tensor(images.float(), 0.1, 0, torch.quint8),
    "conjugate": lambda images: torch.conj(images.to(torch.complex64)),
    "subclass": lambda images: images.as_subclass(torch.nn.Buffer if hasattr(torch.nn, "Buffer") else torch.Tensor),
}


def adapt_images(draw: Draw, checker: Checker, folder: Path) -> None:
    """Calls of an adapter with unusual images; afterwards it predicts as before."""
    method = draw(methods)
    adapter = adapter_of(method, guard=draw(st.booleans()))
    images = draw_images(draw)
    call = draw(st.sampled_from((adapter, adapter, adapter.step, adapter.predict)))

    def call_adapter(images: Any, method: str) -> Any:
        return call(images)

    checker.call(call_adapter, images, method, adapter=adapter)
    adapter.reset()


def corruptions(draw: Draw, checker: Checker, folder: Path) -> None:
    """``driftlaw.corrupt``."""
    images = draw_images(draw)
    name = mostly(draw, st.sampled_from(list_corruptions("all")), st.sampled_from(("fogg", "")) | any_values)
    severity = mostly(draw, st.integers(1, 5), st.sampled_from((0, 6)) | any_values)
    keywords = {"seed": mostly(draw, st.integers(0, 2**40), seeds)} if draw(st.booleans()) else {}
    if draw(st.integers(0, 3)) == 0:
        usual = st.sampled_from(([0, 1, 2, 3], [-1] * 4, [2**62] * 4))
        keywords["indices"] = mostly(draw, usual, st.just([0.5] * 4) | any_values)
    checker.call(driftlaw.corrupt, images, name, severity, **keywords)


def draw_loader(draw: Draw) -> Any:
    """Return a loader, a dataset or a list of batches, most of them unusual."""
    count = draw(st.sampled_from((0, 1, 5, 8)))
    images = torch.rand(count, 3, SIDE, SIDE)
    labels = torch.arange(count) % CLASSES
    odd_labels = (labels, labels + 5, -labels, labels.float(), labels[:, None], labels[: count // 2], None, "labels")
    labels = mostly(draw, st.just(labels), st.sampled_from(odd_labels))
    if mostly(draw, st.just(False), st.just(True)):
        images = draw_images(draw)
    kind = draw(
        st.sampled_from(("pairs", "list", "loader", "dataset", "dict", "generator", "images", "nested", "other"))
    )
    if kind == "other":
        return draw(any_values)
    if kind in ("loader", "dataset"):
        data = train_data()
        return DataLoader(data, batch_size=draw(st.integers(1, 5))) if kind == "loader" else data
    batch = {
        "dict": {"image": images, "label": labels},
        "images": images,
        "nested": [[images, labels]],
        "list": [images, labels, None],
    }.get(kind, (images, labels))
    batches = [batch] * draw(st.integers(0, 3))
    return iter(batches) if kind == "generator" else batches


def streams(draw: Draw, checker: Checker, folder: Path) -> None:
    """``driftlaw.make_stream`` with unusual data and settings, and its first batches."""
    fields = (*StreamSettings.model_fields, "unknown", "device", "data_dir", "like")
    changes = mostly(draw, st.just({}), st.dictionaries(st.sampled_from(fields), any_values, max_size=2))
    kind = draw(st.sampled_from(("loader", "loader", "dataset", "mapping")))
    if kind == "loader":
        data = draw_loader(draw)
    elif kind == "dataset":
        data = TensorDataset(*train_data().tensors)
        names = st.sampled_from((["fog"], ["clean"], ["snow", "fog"], "held_out", []))
        changes = {"corruptions": draw(names), "limit": 2, **changes}
    else:
        data = {"dataset": "folder:nowhere", **draw(st.dictionaries(st.sampled_from(fields), json_values, max_size=3))}
    stream = checker.call(driftlaw.make_stream, data, **changes)
    if stream is not None:

        def read(stream: Any, changes: Any) -> None:
            repr(stream)
            for _, batch in zip(range(2), stream, strict=False):
                repr(batch)
            stream.recipe()

        checker.call(read, stream, changes)


def runs(draw: Draw, checker: Checker, folder: Path) -> None:
    """``driftlaw.run`` with unusual loaders and arguments."""
    adapter = adapter_of(draw(st.sampled_from(("source", "norm", "tent", "law", "lame"))))
    keywords: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        names = st.sampled_from(("calibration", "forgetting", "drift", "agreement", "nothing"))
        keywords["metrics"] = mostly(draw, st.lists(names, max_size=2), any_values)
    if draw(st.integers(0, 4)) == 0:
        keywords["reset_on"] = draw(st.sampled_from(("never", "domain", "batch")) | any_values)
    if draw(st.integers(0, 4)) == 0:
        keywords["checkpoint_seconds"] = draw(st.sampled_from((0, 0.0, -1.0)) | any_values)
    if draw(st.integers(0, 2)) == 0:
        paths = st.sampled_from((folder / "record.jsonl", str(folder / "new" / "record.jsonl"), folder, "/dev/null/x"))
        keywords["record"] = mostly(draw, paths, any_values)
    if draw(st.integers(0, 9)) == 0:
        keywords["command"] = draw(any_values)
    data = draw_loader(draw)
    checker.call(driftlaw.run, data, adapter if draw(st.integers(0, 9)) else draw(any_values), **keywords)
    adapter.reset()
