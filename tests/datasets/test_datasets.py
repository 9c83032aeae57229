"""Loading by name."""

import dataclasses
import hashlib
import subprocess
import sys

import numpy as np
import pytest

from driftlaw.datasets import list_datasets, load_dataset
from driftlaw.datasets import registry as catalogue
from driftlaw.datasets.fetching import verify
from driftlaw.errors import DataError, UsageError
from tests.datasets import made_up


@pytest.fixture
def published(monkeypatch):
    """Let the made-up images be the published CIFAR-10."""
    data = made_up.splits()
    monkeypatch.setitem(catalogue.CATALOGUE, "cifar10", made_up.info(data))
    return data


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar10_is_read_from_a_local_folder(published, tmp_path, split):
    made_up.write_folder(published, tmp_path)
    source = load_dataset("cifar10", data_dir=tmp_path, split=split)
    assert (source.images(np.arange(len(source))) == published[split][0]).all()
    assert (source.labels == published[split][1]).all()
    facts = source.facts()
    assert (facts["split"], facts["count"]) == (split, len(published[split][1]))
    assert "Krizhevsky" in facts["origin"]


@pytest.mark.parametrize("split", ["train", "test"])
def test_cifar100_is_read_from_the_official_layout_with_its_fine_labels(tmp_path, monkeypatch, split):
    data = made_up.splits(per_class=1, classes=100)
    folder = made_up.write_official_cifar100(data, tmp_path)
    known = {
        name: catalogue.Published(len(data[name][1]), md5={name: hashlib.md5((folder / name).read_bytes()).hexdigest()})
        for name in data
    }
    monkeypatch.setitem(catalogue.CATALOGUE, "cifar100", dataclasses.replace(catalogue.CIFAR100, published=known))
    source = load_dataset("cifar100", data_dir=tmp_path, split=split)
    assert (source.images(np.arange(len(source))) == data[split][0]).all()
    assert (source.labels == data[split][1]).all()
    assert (source.num_classes, source.class_names[99]) == (100, "worm")
    assert "Krizhevsky" in source.facts()["origin"]
    assert verify(catalogue.CATALOGUE["cifar100"], tmp_path) == []
    (folder / split).write_bytes((folder / split).read_bytes() + b" ")
    assert f"{split} has md5" in verify(catalogue.CATALOGUE["cifar100"], tmp_path)[0]


def test_other_files_in_the_layout_of_cifar100_are_told_apart(tmp_path):
    made_up.write_official_cifar100(made_up.splits(per_class=1, classes=100), tmp_path)
    with pytest.warns(UserWarning, match="not its published content"):
        load_dataset("cifar100", data_dir=tmp_path)
    assert "100 images; 10000 were published" in verify(catalogue.CIFAR100, tmp_path)[1]


def test_the_given_folder_may_be_the_batches_themselves(published, tmp_path):
    assert len(load_dataset("cifar10", data_dir=made_up.write_folder(published, tmp_path))) == 20


def test_the_environment_names_the_folder(published, tmp_path, monkeypatch):
    made_up.write_folder(published, tmp_path)
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))
    assert len(load_dataset("cifar10")) == 20


def test_other_content_in_the_layout_is_read_and_told_apart(tmp_path):
    made_up.write_folder(made_up.splits(), tmp_path)
    with pytest.warns(UserWarning, match="not its published content"):
        source = load_dataset("cifar10", data_dir=tmp_path)
    assert source.facts()["origin"] == "in the layout of cifar10, but not its published content"


def test_a_folder_without_class_names_is_enough(published, tmp_path):
    (made_up.write_folder(published, tmp_path) / "batches.meta").unlink()
    assert load_dataset("cifar10", data_dir=tmp_path).class_names[9] == "truck"


def test_loading_never_downloads_and_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"run `driftlaw data get cifar10`, or put the official files test_batch into"):
        load_dataset("cifar10", data_dir=tmp_path)


def test_an_unknown_dataset_or_split_names_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'cifar10'"):
        load_dataset("cifar-10")
    with pytest.raises(UsageError, match="Did you mean 'train'"):
        load_dataset("cifar10", split="training")
    with pytest.raises(UsageError, match="Unknown split of cifar10-embedded 'train'"):
        load_dataset("cifar10-embedded", split="train")


def test_the_list_names_what_can_be_loaded():
    assert [info.name for info in list_datasets()] == [
        "cifar10-embedded",
        "cifar10",
        "cifar100",
        "imagenet",
        "folder:PATH",
    ]


def test_the_room_needs_no_torch():
    code = "import sys, driftlaw.datasets, driftlaw.datasets.fetching; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
