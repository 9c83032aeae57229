"""Our own CIFAR-10-C."""

import os

import numpy as np
import pytest
import torch

from driftlaw.corruptions import corrupt, list_corruptions
from driftlaw.datasets import ArrayImages, load_dataset, open_archive
from driftlaw.errors import DataError, UsageError
from driftlaw.files import sha256_of
from driftlaw.streams import archives
from driftlaw.streams.archives import make_archive

NAMES = ["gaussian_noise", "contrast"]


@pytest.fixture(scope="module")
def source():
    embedded = load_dataset("cifar10-embedded")
    return ArrayImages("few", embedded.images(np.arange(12)), embedded.labels[:12], embedded.class_names)


def test_an_archive_holds_what_corrupt_makes_of_each_image(source, tmp_path):
    assert make_archive(source, tmp_path, names=NAMES, seed=5) == NAMES
    archive = open_archive(tmp_path)
    assert archive.corruptions() == sorted(NAMES)
    assert archive.labels.tolist() == source.labels.tolist()
    assert archive.num_classes == 10
    images = torch.from_numpy(source.images([7, 2])).permute(0, 3, 1, 2)
    for name in NAMES:
        alone = corrupt(images, name, 4, seed=5, indices=torch.tensor([7, 2])).permute(0, 2, 3, 1).numpy()
        assert (archive.images(name, 4, [7, 2]) == alone).all()


def test_the_size_of_a_piece_changes_nothing(source, tmp_path, monkeypatch):
    make_archive(source, tmp_path / "one", names=NAMES)
    monkeypatch.setattr(archives, "_PIXELS_A_PIECE", 5 * 32 * 32)
    make_archive(source, tmp_path / "many", names=NAMES)
    for name in NAMES:
        assert sha256_of(tmp_path / "one" / f"{name}.npy") == sha256_of(tmp_path / "many" / f"{name}.npy")


def test_progress_counts_to_five_times_the_images(source, tmp_path):
    told = []
    make_archive(source, tmp_path, names=["contrast"], progress=lambda *words: told.append(words))
    assert told[-1] == ("contrast", 60, 60)


def test_a_second_call_makes_only_what_is_missing(source, tmp_path):
    make_archive(source, tmp_path, names=["contrast"])
    assert make_archive(source, tmp_path, names=NAMES) == ["gaussian_noise"]
    assert make_archive(source, tmp_path, names=NAMES) == []


def test_another_seed_or_dataset_does_not_go_into_the_same_folder(source, tmp_path):
    make_archive(source, tmp_path, names=["contrast"], seed=0)
    with pytest.raises(DataError, match="made otherwise"):
        make_archive(source, tmp_path, names=["contrast"], seed=1)
    fewer = ArrayImages("fewer", source.images(np.arange(10)), source.labels[:10], source.class_names)
    with pytest.raises(DataError, match="made otherwise"):
        make_archive(fewer, tmp_path, names=["contrast"], seed=0)


def test_an_unknown_corruption_is_refused_before_anything_is_written(source, tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'fog'"):
        make_archive(source, tmp_path / "out", names=["contrast", "fogg"])
    assert os.listdir(tmp_path) == []


def test_the_fifteen_of_the_benchmark_are_the_default(source, tmp_path):
    two = ArrayImages("two", source.images([0, 1]), source.labels[:2], source.class_names)
    assert make_archive(two, tmp_path) == list_corruptions("benchmark")
