"""load_dataset and list_datasets."""

import dataclasses
import hashlib
import subprocess
import sys

import numpy as np
import pytest

from driftlaw.datasets import content_sha256, list_datasets, load_dataset, registry
from driftlaw.datasets.download import verify_dataset
from driftlaw.errors import DataError, UsageError
from tests.datasets import synthetic


@pytest.fixture
def published(monkeypatch):
    """Register synthetic images as the published CIFAR-10."""
    data = synthetic.splits()
    monkeypatch.setitem(registry.DATASETS, "cifar10", synthetic.info(data))
    return data


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar10_is_read_from_a_local_folder(published, tmp_path, split):
    synthetic.write_folder(published, tmp_path)
    dataset = load_dataset("cifar10", data_dir=tmp_path, split=split)
    assert (dataset.images(np.arange(len(dataset))) == published[split][0]).all()
    assert (dataset.labels == published[split][1]).all()
    metadata = dataset.metadata()
    assert (metadata["split"], metadata["count"]) == (split, len(published[split][1]))
    assert "Krizhevsky" in metadata["origin"]


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar100_is_read_from_the_official_layout_with_its_fine_labels(tmp_path, monkeypatch, split):
    data = synthetic.splits(per_class=1, classes=100)
    folder = synthetic.write_official_cifar100(data, tmp_path)
    known = {
        name: registry.Published(len(data[name][1]), md5={name: hashlib.md5((folder / name).read_bytes()).hexdigest()})
        for name in data
    }
    info = dataclasses.replace(registry.DATASETS["cifar100"], published=known)
    monkeypatch.setitem(registry.DATASETS, "cifar100", info)
    dataset = load_dataset("cifar100", data_dir=tmp_path, split=split)
    assert (dataset.images(np.arange(len(dataset))) == data[split][0]).all()
    assert (dataset.labels == data[split][1]).all()
    assert (dataset.num_classes, dataset.class_names[99]) == (100, "worm")
    assert "Krizhevsky" in dataset.metadata()["origin"]
    assert verify_dataset(info, tmp_path) == []
    (folder / split).write_bytes((folder / split).read_bytes() + b" ")
    assert f"{split} has md5" in verify_dataset(info, tmp_path)[0]


def test_unpublished_cifar100_files_give_a_warning(tmp_path):
    synthetic.write_official_cifar100(synthetic.splits(per_class=1, classes=100), tmp_path)
    with pytest.warns(UserWarning, match="not its published content"):
        load_dataset("cifar100", data_dir=tmp_path)
    assert "found 100 images; expected 10000" in verify_dataset(registry.DATASETS["cifar100"], tmp_path)[1]


def test_known_variant_keeps_its_origin(tmp_path, monkeypatch):
    data = synthetic.splits(per_class=1, classes=100)
    synthetic.write_official_cifar100(data, tmp_path)
    published = {
        split: dataclasses.replace(content, variants={content_sha256(*data[split]): "another split"})
        for split, content in registry.DATASETS["cifar100"].published.items()
    }
    info = dataclasses.replace(registry.DATASETS["cifar100"], published=published)
    monkeypatch.setitem(registry.DATASETS, "cifar100", info)
    assert load_dataset("cifar100", data_dir=tmp_path).metadata()["origin"] == "another split"
    assert verify_dataset(info, tmp_path) == []


def test_data_dir_may_be_the_folder_of_batches(published, tmp_path):
    assert len(load_dataset("cifar10", data_dir=synthetic.write_folder(published, tmp_path))) == 20


def test_environment_variable_sets_the_data_directory(published, tmp_path, monkeypatch):
    synthetic.write_folder(published, tmp_path)
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))
    assert len(load_dataset("cifar10")) == 20


def test_unpublished_content_gives_a_warning(tmp_path):
    synthetic.write_folder(synthetic.splits(), tmp_path)
    with pytest.warns(UserWarning, match="not its published content"):
        dataset = load_dataset("cifar10", data_dir=tmp_path)
    assert dataset.metadata()["origin"] == "in the layout of cifar10, but not its published content"


def test_class_names_file_is_optional(published, tmp_path):
    (synthetic.write_folder(published, tmp_path) / "batches.meta").unlink()
    assert load_dataset("cifar10", data_dir=tmp_path).class_names[9] == "truck"


def test_missing_dataset_raises_with_instructions(tmp_path):
    with pytest.raises(DataError, match=r"Run `driftlaw data get cifar10`, or put the official files test_batch into"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_unknown_dataset_or_split_raises():
    with pytest.raises(UsageError, match="Did you mean 'cifar10'"):
        load_dataset("cifar-10")
    with pytest.raises(UsageError, match="Did you mean 'train'"):
        load_dataset("cifar10", split="training")
    with pytest.raises(UsageError, match="Unknown split of cifar10-embedded 'train'"):
        load_dataset("cifar10-embedded", split="train")


def test_list_datasets():
    assert [info.name for info in list_datasets()] == [
        "cifar10-embedded",
        "cifar10",
        "cifar100",
        "imagenet",
        "shapes",
        "camvid",
        "cityscapes",
        "acdc",
        "folder:PATH",
        "shards:PATTERN",
    ]


def test_package_does_not_import_torch():
    code = "import sys, driftlaw.datasets, driftlaw.datasets.download; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
