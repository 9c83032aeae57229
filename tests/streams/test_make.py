"""make_stream with folders, datasets and loaders; presets and settings are tested with CorruptedStream."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from driftlaw.datasets import load_dataset
from driftlaw.errors import DataError, UsageError
from driftlaw.streams import CorruptedStream, LoaderStream, make_stream

IMAGES = torch.arange(20)[:, None, None, None].expand(20, 3, 8, 8) / 20
LABELS = torch.arange(20) % 4
DATASET = TensorDataset(IMAGES, LABELS)


class Pictures:
    """Dataset of dicts with PIL images, as Hugging Face datasets return them; not a torch Dataset."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return {"image": Image.new("L", (8, 8), 10 * index), "label": index % 2}


class Samples(IterableDataset):
    def __iter__(self):
        return iter(zip(IMAGES, LABELS.tolist(), strict=True))


@pytest.fixture
def folder(tmp_path):
    for number in range(12):
        path = tmp_path / "photos" / ["cat", "dog"][number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (10 * number, 0, 0)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def flat_folder(tmp_path):
    (tmp_path / "frames").mkdir()
    for number in range(12):
        Image.new("RGB", (8, 8), (10 * number, 0, 0)).save(tmp_path / "frames" / f"{number}.png")
    return tmp_path / "frames"


def test_a_stream_is_returned_unchanged():
    stream = make_stream([IMAGES])
    assert make_stream(stream) is stream


@pytest.mark.parametrize("as_given", [str, lambda path: path, lambda path: f"{path}/"])
def test_class_folders_give_labels(folder, as_given):
    stream = make_stream(as_given(folder), batch_size=5)
    batches = list(stream)
    assert [len(batch.images) for batch in batches] == [5, 5, 2]
    assert {batch.domain.name for batch in batches} == {"clean"}
    reds = torch.cat([batch.images[:, 0, 0, 0] for batch in batches]).mul(25.5).round().int()
    assert torch.equal(torch.cat([batch.labels for batch in batches]), reds.long() % 2)
    assert reds.tolist() != sorted(reds.tolist())  # shuffled
    assert stream.recipe()["dataset"]["name"] == f"folder:{folder}"
    assert stream.recipe()["dataset"]["count"] == 12
    assert make_stream(stream.recipe()).recipe() == stream.recipe()


def test_a_flat_folder_has_no_labels_and_keeps_its_order(flat_folder):
    stream = make_stream(flat_folder)
    (batch,) = stream
    assert batch.labels is None
    assert batch.images[:, 0, 0, 0].mul(25.5).round().int().tolist() == list(range(12))
    assert stream.num_classes == 0
    assert make_stream(stream.recipe()).recipe() == stream.recipe()
    assert make_stream(flat_folder, order="shuffled").settings.order == "shuffled"


def test_a_folder_can_be_corrupted_on_the_fly(flat_folder, folder):
    for given in (folder, flat_folder):
        stream = make_stream(given, corruptions=["clean", "fog"], limit=4)
        assert [(batch.domain.name, len(batch.images)) for batch in stream] == [("clean", 4), ("fog", 4)]


def test_dirichlet_order_needs_labels(flat_folder):
    with pytest.raises(UsageError, match="order='dirichlet' needs a label per image"):
        make_stream(flat_folder, order="dirichlet")


def test_a_missing_folder_is_reported(tmp_path):
    with pytest.raises(DataError, match="missing does not exist"):
        make_stream(f"{tmp_path}/missing/")
    with pytest.raises(UsageError, match="Unknown preset 'missing'"):
        make_stream("missing")


def test_a_preset_name_is_no_folder(tmp_path, monkeypatch):
    (tmp_path / "embedded").mkdir()
    monkeypatch.chdir(tmp_path)
    assert make_stream("embedded", limit=5).dataset.name == "cifar10-embedded"
    with pytest.raises(DataError, match="embedded has no images"):
        make_stream("embedded/")


def test_a_dataset_is_shuffled_with_a_seed_and_not_changed():
    normalized = TensorDataset(IMAGES * 4 - 2, LABELS)
    stream = make_stream(normalized, batch_size=8)
    assert isinstance(stream, LoaderStream)
    images = torch.cat([batch.images for batch in stream])
    order = images[:, 0, 0, 0].add(2).mul(5).round().long()
    assert order.tolist() != list(range(20))
    assert sorted(order.tolist()) == list(range(20))
    assert torch.equal(torch.cat([batch.labels for batch in stream]), order % 4)
    assert torch.equal(images, torch.cat([batch.images for batch in make_stream(normalized)]))
    other = torch.cat([batch.images for batch in make_stream(normalized, seed=2)])
    assert not torch.equal(images, other)


def test_recipes_of_a_dataset_differ_by_seed_only():
    one, two = (make_stream(DATASET, seed=seed).recipe() for seed in (1, 2))
    assert (one.pop("seed"), two.pop("seed")) == (1, 2)
    assert one == two
    assert make_stream(TensorDataset(IMAGES + 1, LABELS)).recipe()["first_item_sha256"] != one["first_item_sha256"]


def test_order_and_limit_of_a_dataset():
    (batch,) = make_stream(DATASET, order="as-is", limit=6)
    assert torch.equal(batch.images, IMAGES[:6])


def test_a_dataset_is_corrupted_if_asked_for():
    stream = make_stream(DATASET, corruptions=["clean", "fog"], batch_size=20)
    assert isinstance(stream, CorruptedStream)
    assert [batch.domain.name for batch in stream] == ["clean", "fog"]


def test_datasets_of_driftlaw_and_of_dicts():
    stream = make_stream(load_dataset("cifar10-embedded"), limit=64)
    assert isinstance(stream, CorruptedStream)
    assert [batch.domain.name for batch in stream] == ["clean"]
    (batch,) = make_stream(Pictures(), order="as-is")
    assert batch.images.dtype == torch.uint8
    assert batch.images[:, 2, 0, 0].tolist() == [0, 10, 20, 30, 40, 50]
    assert batch.labels.tolist() == [0, 1, 0, 1, 0, 1]


def test_a_dataset_without_a_length_is_batched():
    stream = make_stream(Samples(), batch_size=8)
    assert [len(batch.images) for batch in stream] == [8, 8, 4]
    with pytest.raises(UsageError, match="limit cannot be set for a Samples"):
        make_stream(Samples(), limit=3)


@pytest.mark.parametrize("name", ["schedule", "severity"])
def test_settings_that_need_corruptions_say_so(name):
    with pytest.raises(UsageError, match=rf"{name} cannot be set for a TensorDataset .* corruptions=\['clean'\]"):
        make_stream(DATASET, **{name: 3})
    with pytest.raises(UsageError, match="order=dirichlet cannot be set"):
        make_stream(DATASET, order="dirichlet")
    with pytest.raises(UsageError, match="batch_size = 0"):
        make_stream(DATASET, batch_size=0)


@pytest.mark.parametrize("data", [np.int64(3), np.float32(1), 3.0, object()])
def test_what_is_no_data_is_refused(data):
    with pytest.raises(UsageError, match="expected a DataLoader"):
        make_stream(data)


def test_a_name_that_is_too_long_for_a_file_is_unknown():
    with pytest.raises(UsageError, match="Unknown preset"):
        make_stream("é" * 300)


def test_nested_tensors_of_a_loader_are_refused():
    with pytest.raises(UsageError):
        next(iter(make_stream([torch.nested.nested_tensor(list(IMAGES[:2]))])))


@pytest.mark.parametrize("device", ["nothing", b"gpu", 2**63, None, 0.5], ids=repr)
def test_what_is_no_device_is_refused(device):
    with pytest.raises(UsageError, match="device"):
        make_stream("embedded", device=device)


def test_an_empty_dataset_is_refused():
    with pytest.raises(UsageError, match=r"The dataset \(TensorDataset\) is empty"):
        make_stream(TensorDataset(IMAGES[:0]))


@pytest.mark.parametrize("changes", [{"batch_size": 3}, {"corruptions": ["fog"]}])
def test_batches_of_a_loader_cannot_be_changed(changes):
    with pytest.raises(UsageError, match="cannot be set for a DataLoader, because it makes its own batches"):
        make_stream(DataLoader(DATASET), **changes)


def test_a_recipe_without_the_name_of_its_dataset_is_refused():
    with pytest.raises(UsageError, match="dataset = "):
        make_stream({"dataset": {"count": 3}})


def test_a_loader_cannot_be_rebuilt_from_a_recipe():
    with pytest.raises(UsageError, match="A loader cannot be rebuilt"):
        make_stream(make_stream([IMAGES]).recipe())


@pytest.mark.parametrize("data", [None, 3, IMAGES, np.zeros((2, 3, 4, 4))])
def test_other_objects_are_refused(data):
    with pytest.raises(UsageError, match="expected a DataLoader, a dataset, a folder or an iterable"):
        make_stream(data)


def test_the_old_name_of_the_first_argument_works():
    with pytest.warns(DeprecationWarning, match="data="):
        assert make_stream(preset_or_recipe="embedded", limit=5).dataset.name == "cifar10-embedded"


def test_repr_is_short(folder):
    stream = make_stream(folder, corruptions=["fog", "snow"], batch_size=5)
    details = "continual, fog, snow, 12 images per domain, 6 batches of 5"
    assert repr(stream) == f"<CorruptedStream: folder:{folder}, {details}>"
    assert "15 corruptions" in repr(make_stream("embedded"))
