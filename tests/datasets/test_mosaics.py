"""CIFAR-100 as lossless mosaics."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import content_sha256, load_dataset
from driftlaw.datasets import registry as catalogue
from driftlaw.datasets.fetching import fetch, verify
from driftlaw.datasets.mosaics import untile
from driftlaw.datasets.registry import CIFAR100
from driftlaw.errors import DataError
from tests.datasets import made_up


@pytest.fixture(scope="module")
def data():
    return made_up.splits(per_class=1, classes=100)


@pytest.fixture(scope="module")
def written(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    made_up.write_mosaics(data, folder)
    return folder


@pytest.fixture
def known(data, monkeypatch):
    """Let the made-up images be the split that is known."""
    sha256 = {split: content_sha256(*pair) for split, pair in data.items()}
    info = dataclasses.replace(CIFAR100, mosaic=dataclasses.replace(CIFAR100.mosaic, sha256=sha256))
    monkeypatch.setitem(catalogue.CATALOGUE, "cifar100", info)
    return info


@pytest.mark.parametrize("split", ["train", "test"])
def test_mosaics_are_read_tile_by_tile_and_say_whose_split_they_are(known, data, written, split):
    source = load_dataset("cifar100", data_dir=written, split=split)
    images, labels = data[split]
    assert (source.images(np.arange(len(source))) == images).all()
    assert (source.labels == labels).all()
    assert (source.num_classes, source.class_names[:2]) == (100, ["apple", "aquarium_fish"])
    facts = source.facts()
    assert facts["origin"].startswith("our split")
    assert (facts["name"], facts["split"], facts["count"]) == ("cifar100", split, len(labels))


def test_the_folder_itself_will_do(known, written):
    assert len(load_dataset("cifar100", data_dir=written / "cifar100")) == 100


def test_what_is_there_is_found_and_verified(known, written):
    assert known.is_present(written)
    assert fetch(known, data_dir=written) == written / "cifar100"
    assert verify(known, written) == []


def test_another_split_in_mosaics_is_read_and_told_apart(written):
    with pytest.warns(UserWarning, match="mosaics of a split that is not known here"):
        assert "our split" not in load_dataset("cifar100", data_dir=written).facts()["origin"]
    assert len(verify(CIFAR100, written)) == 2


def test_the_official_files_go_before_the_mosaics(known, data, tmp_path):
    made_up.write_mosaics(data, tmp_path)
    made_up.write_official_cifar100(data, tmp_path)
    with pytest.warns(UserWarning, match="in the layout of cifar100, but not its published content"):
        load_dataset("cifar100", data_dir=tmp_path)


def test_tiles_are_read_left_to_right_and_top_to_bottom():
    sheet = np.arange(4, dtype=np.uint8).reshape(2, 2).repeat(3, 0).repeat(3, 1)[..., None].repeat(3, 2)
    assert untile(sheet, 2)[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


def damaged(data, folder, change):
    place = made_up.write_mosaics({"test": data["test"]}, folder)
    change(place)
    with pytest.raises(DataError) as caught:
        load_dataset("cifar100", data_dir=folder)
    return str(caught.value)


def test_damaged_files_are_named_and_explained(data, tmp_path):
    told = damaged(data, tmp_path / "a", lambda place: (place / "test.webp").write_bytes(b"no picture"))
    assert "test.webp cannot be read" in told
    told = damaged(data, tmp_path / "b", lambda place: (place / "labels.json").write_text("{"))
    assert "labels.json cannot be read" in told
    told = damaged(data, tmp_path / "c", lambda place: (place / "labels.json").write_text('{"test": [1]}'))
    assert "no list under «fine_label_names»" in told
    notes = json.dumps({"test": [0] * 99 + [0.5], "fine_label_names": ["apple"]})
    assert "100 labels under «test»" in damaged(
        data, tmp_path / "d", lambda place: (place / "labels.json").write_text(notes)
    )
    small = Image.new("RGB", (64, 64))
    told = damaged(data, tmp_path / "e", lambda place: small.save(place / "test.webp", lossless=True))
    assert "64×64 pixels; expected 100 tiles" in told
