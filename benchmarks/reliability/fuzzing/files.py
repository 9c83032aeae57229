"""Targets: presets, files of weights, folders of images, archives, and shards."""

from __future__ import annotations

import functools
import io
import json
import math
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from PIL import Image

import driftlaw
from benchmarks.reliability.fuzzing.checker import Checker, Draw
from benchmarks.reliability.fuzzing.networks import SIDE, tiny
from benchmarks.reliability.fuzzing.values import any_values, damage_bytes, damage_tree, json_values
from driftlaw.datasets import load_dataset, open_archive
from driftlaw.experiments import plan_run
from driftlaw.models import build_model, load_model, save_model
from driftlaw.settings import read_preset

PRESET = {
    "default_methods": ["norm", "law"],
    "stream": {"dataset": "cifar10-embedded", "batch_size": 4, "limit": 2, "corruptions": ["fog"], "severity": 3},
    "model": {"weights": "wrn_16_1-cifar10"},
    "step": {"precision": "float32"},
    "methods": {"norm": {}, "law": {"tau": 0.6, "learning_rate": 1e-3, "grouping": "module"}, "tent": {"lr": 0.1}},
}


def presets(draw: Draw, checker: Checker, folder: Path) -> None:
    """Presets with wrong tables, values and bytes: plans of runs, settings of methods, streams."""
    path = folder / "preset.toml"
    data = "".join(f"{_key(key)} = {_toml(value)}\n" for key, value in damage_tree(draw, PRESET).items())
    raw = data.encode("utf-8", "surrogatepass")
    path.write_bytes(damage_bytes(draw, raw) if draw(st.integers(0, 4)) == 0 else raw)
    call = draw(st.sampled_from(("read", "plan", "plan", "adapt", "adapt", "stream")))
    text = raw.decode(errors="replace")
    name = f"embedded+{path}" if draw(st.integers(0, 4)) == 0 else str(path)

    def read(text: str) -> Any:
        return read_preset(name)

    def plan(text: str) -> Any:
        return [spec.file_name for spec in plan_run(name)]

    def adapt(text: str) -> Any:
        return driftlaw.adapt(tiny(), "law", preset=name)

    def stream(text: str) -> Any:
        return driftlaw.make_stream(name)

    checker.call({"read": read, "plan": plan, "adapt": adapt, "stream": stream}[call], text)


def _key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else json.dumps(key)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)} = {_toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return "''" if value is None else json.dumps(value)


@functools.cache
def weights_file() -> bytes:
    """Return a complete file of weights."""
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        path = Path(folder) / "weights.safetensors"
        save_model(build_model("wrn_10_1", num_classes=3), path, metadata={"dataset": "none"})
        return path.read_bytes()


def weights(draw: Draw, checker: Checker, folder: Path) -> None:
    """``driftlaw.load_model`` with damaged files and unusual arguments."""
    kind = draw(st.sampled_from(("header", "header", "metadata", "metadata", "bytes", "torch", "torch", "name")))
    data, path = weights_file(), folder / "weights.safetensors"
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    name: Any = path
    if kind == "bytes":
        data = damage_bytes(draw, data)
    elif kind in ("header", "metadata"):
        if kind == "metadata":
            stored = damage_tree(draw, json.loads(header["__metadata__"]["driftlaw"]))
            header["__metadata__"]["driftlaw"] = json.dumps(stored) if draw(st.integers(0, 9)) else draw(st.text())
        else:
            header = damage_tree(draw, header)
        text = json.dumps(header).encode("utf-8", "surrogatepass")
        data = len(text).to_bytes(8, "little") + text + data[8 + length :]
    elif kind == "torch":
        path = name = folder / "weights.pth"
        tensors = dict(build_model("wrn_10_1", num_classes=3).state_dict())
        content = damage_tree(draw, draw(st.sampled_from((tensors, {"state_dict": tensors}, {"model": tensors}))))
        buffer = io.BytesIO()
        torch.save(content, buffer)
        data = damage_bytes(draw, buffer.getvalue()) if draw(st.integers(0, 2)) == 0 else buffer.getvalue()
    else:
        names = ("", "wrn_16_1", "wrn_99_1", "wrn_10_1", "wrn_6000004_1", "resnet50-imagenet", "timm:", "hf:", "a.py:b")
        name = draw(st.sampled_from((*names, "torchvision:resnet18@X", folder, "wrn_16_1-cifar10")) | any_values)
    path.write_bytes(data)
    keywords: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        keys = st.sampled_from(("num_classes", "folder", "architecture", "normalize", "checkpoint"))
        odd = st.sampled_from((path, "half", "wrn_10_1", "wrn_16_1", 3, {"mean": [0.5], "std": [0]})) | any_values
        keywords = draw(st.dictionaries(keys, odd, max_size=2))

    def load(name: Any, header: Any, keywords: Any) -> None:
        load_model(name, **keywords)(torch.rand(1, 3, 8, 8))

    checker.call(load, name, header if kind in ("header", "metadata") else kind, keywords)


@functools.cache
def picture(format: str, mode: str = "RGB", side: int = SIDE) -> bytes:
    """Return the file of an image."""
    buffer = io.BytesIO()
    Image.new(mode, (side, side)).save(buffer, format)
    return buffer.getvalue()


def image_folders(draw: Draw, checker: Checker, folder: Path) -> None:
    """Folders with damaged images, other files, links, pipes and unusual names: datasets and streams."""
    root = folder / "images"
    root.mkdir()
    names = ("a.png", "b.JPG", ".hidden.png", "c.txt", "d", "é\n.png", "e.png.part", "10.png", "2.png")
    for _ in range(draw(st.integers(0, 5))):
        parent = root / draw(st.sampled_from((".", ".", "cat", "dog", "10", "2", "cat/nested", "test", "train/x")))
        target = parent / draw(st.sampled_from(names))
        if parent.exists() and not parent.is_dir():
            continue
        parent.mkdir(parents=True, exist_ok=True)
        if target.exists() or target.is_symlink():
            continue
        kind = draw(
            st.sampled_from(("png", "png", "jpeg", "damaged", "gray", "large", "link", "loop", "pipe", "folder"))
        )
        if kind in ("link", "loop"):
            target.symlink_to(target if kind == "loop" else draw(st.sampled_from(("/dev/zero", "/nowhere", root))))
        elif kind == "pipe":
            os.mkfifo(target)
        elif kind == "folder":
            target.mkdir()
        else:
            data = {
                "jpeg": picture("JPEG"),
                "gray": picture("PNG", "LA"),
                "large": picture("PNG", "RGB", 9),
            }.get(kind, picture("PNG"))
            target.write_bytes(damage_bytes(draw, data) if kind == "damaged" else data)
    listing = sorted(str(path.relative_to(root)) for path in root.rglob("*"))
    call, split = draw(st.sampled_from((("dataset", "test"), ("dataset", "train"), ("stream", ""))))

    def dataset(listing: list[str]) -> None:
        found = load_dataset(f"folder:{root}", split=split)
        found.images(range(len(found)))
        found.metadata()

    def stream(listing: list[str]) -> None:
        for batch in driftlaw.make_stream(root, batch_size=2):
            repr(batch)

    checker.call({"dataset": dataset, "stream": stream}[call], listing)


def archives(draw: Draw, checker: Checker, folder: Path) -> None:
    """Archives with damaged arrays, labels and manifests."""
    root = folder / "archive"
    root.mkdir()
    shape = draw(st.sampled_from(((10, SIDE, SIDE, 3),) * 4 + ((9, SIDE, SIDE, 3), (10, SIDE, 3), (10, 0, 0, 3))))
    dtype = draw(st.sampled_from((np.uint8,) * 4 + (np.float32, np.int64)))
    labels: Any = np.tile(np.array(draw(st.sampled_from(((0, 1),) * 4 + ((0, -1), (0, 2**40), (2**62, 0))))), 5)
    labels = labels.astype(draw(st.sampled_from((np.int64,) * 4 + (np.float64, np.uint64, np.bool_, object))))
    for name, array in {"fog": np.zeros(shape, dtype), "labels": labels}.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=True)
        damaged = draw(st.integers(0, 3)) == 0
        (root / f"{name}.npy").write_bytes(damage_bytes(draw, buffer.getvalue()) if damaged else buffer.getvalue())
    if draw(st.booleans()):
        files = {name: {"sha256": "0" * 64, "bytes": 100} for name in ("fog.npy", "labels.npy")}
        recipe = {"dataset": {"name": "cifar10", "origin": "x"}}
        manifest = damage_tree(draw, {"files": files, "num_classes": 2, "recipe": recipe}, json_values)
        (root / "driftlaw-manifest.json").write_bytes(json.dumps(manifest).encode("utf-8", "surrogatepass"))

    def read(labels: Any) -> None:
        archive = open_archive(root)
        archive.verify()
        archive.metadata()
        archive.images("fog", 3, [0, 1])
        stream = driftlaw.make_stream({"dataset": f"archive:{root}", "corruptions": ["fog"], "batch_size": 2})
        for batch in stream:
            repr(batch)
        stream.recipe()

    checker.call(read, labels)


def shards(draw: Draw, checker: Checker, folder: Path) -> None:
    """WebDataset shards with damaged headers, images and labels, and unusual patterns."""
    names = ("a.png", "a.cls", "a.json", "b.PNG", "b.cls", "c/a.jpg", ".d.png", "__meta__.json", "e", "é\n.png")
    texts = (b"1", b"-1", b"x", b'{"label": 2}', b'{"label": true}', b"[[", b"9" * 5000, b"")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in draw(st.lists(st.sampled_from(names), max_size=5)):
            is_label = name.endswith((".cls", ".json"))
            data = draw(st.sampled_from(texts)) if is_label else picture(*draw(st.sampled_from((("PNG",), ("JPEG",)))))
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data if draw(st.integers(0, 5)) else data[:1].ljust(len(data))))
    data = damage_bytes(draw, out.getvalue()) if draw(st.booleans()) else out.getvalue()
    (folder / "0.tar").write_bytes(data)
    patterns = ("0.tar", "{0..0}.tar", "{0,0}.tar", "{0..1}.tar", "{9..0}.tar", "0.tar|0.tar", "{0..99999999}.tar", "|")
    pattern = f"{folder}/{draw(st.sampled_from(patterns))}"

    def read(pattern: str, data: bytes) -> None:
        stream = driftlaw.make_stream({"dataset": f"shards:{pattern}", "corruptions": ["clean"], "batch_size": 2})
        for batch in stream:
            repr(batch)
        stream.recipe()

    checker.call(read, pattern, data)
