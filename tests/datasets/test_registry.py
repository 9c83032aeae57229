"""Registry of datasets."""

import dataclasses

import pytest

from driftlaw.datasets import list_datasets
from driftlaw.datasets.registry import DATASETS
from tests.datasets import synthetic

CIFAR10 = DATASETS["cifar10"]


def test_every_dataset_is_described():
    for info in list_datasets():
        assert info.title
        assert info.origin
        assert info.licence
        assert info.splits
        assert set(info.published) <= set(info.splits)
        # ImageNet's class names are those of its folders
        assert len(info.class_names) == (0 if info.in_class_folders else info.num_classes or 0)


def test_entries_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CIFAR10.name = "other"


def test_dataset_is_present_if_all_splits_are(tmp_path):
    assert DATASETS["cifar10-embedded"].is_present(tmp_path)
    assert not CIFAR10.is_present(tmp_path)
    folder = synthetic.write_folder(synthetic.splits(), tmp_path)
    assert CIFAR10.is_present(tmp_path)
    (folder / "data_batch_5").unlink()
    assert not CIFAR10.is_present(tmp_path)


def test_official_archive():
    assert CIFAR10.download.address == "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    assert CIFAR10.download.file_name == "cifar-10-python.tar.gz"
    assert CIFAR10.folder("data").as_posix() == "data/cifar-10-batches-py"
