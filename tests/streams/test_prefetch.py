"""Streams from shards and folders: worker processes give the same batches and the same errors."""

import os
import signal

import pytest
import torch
from torch.utils.data import get_worker_info

import driftlaw
from driftlaw.datasets import load_dataset
from driftlaw.errors import DataError, UsageError
from tests.datasets.shard_files import png, samples, tar, write_shards


def assert_equal(batches, expected):
    batches, expected = list(batches), list(expected)
    assert len(batches) == len(expected)
    for batch, other in zip(batches, expected, strict=True):
        assert torch.equal(batch.images, other.images)
        assert torch.equal(batch.labels, other.labels)
        assert (batch.domain, batch.index, batch.starts_domain) == (other.domain, other.index, other.starts_domain)


@pytest.mark.parametrize(
    "settings", [{}, {"schedule": "mixed", "corruptions": ["clean", "contrast"], "order": "shuffled"}]
)
def test_workers_give_the_same_batches_from_any_batch_on(tmp_path, settings):
    pattern = write_shards(tmp_path)
    stream = driftlaw.make_stream(pattern, batch_size=4, **settings)
    parallel = driftlaw.make_stream(pattern, batch_size=4, workers=2, **settings)
    assert stream.settings.order == settings.get("order", "as-is")
    assert parallel.recipe() == stream.recipe()
    random_state = torch.get_rng_state()
    assert_equal(parallel, stream)
    assert_equal(parallel.iter_from(2), list(stream)[2:])
    assert torch.equal(torch.get_rng_state(), random_state)


def test_earlier_batches_are_not_read(tmp_path):
    stream = driftlaw.make_stream(write_shards(tmp_path), batch_size=5)
    expected = list(stream)
    (tmp_path / "00.tar").unlink()
    assert_equal(stream.iter_from(1), expected[1:])


def test_a_list_of_shards_and_a_recipe_give_the_same_stream(tmp_path):
    stream = driftlaw.make_stream(write_shards(tmp_path), batch_size=4)
    listed = driftlaw.make_stream(sorted(tmp_path.glob("*.tar")), batch_size=4)
    assert_equal(listed, stream)
    assert_equal(driftlaw.make_stream(listed.recipe()), stream)


def test_images_of_shards_are_not_kept(tmp_path):
    stream = driftlaw.make_stream(write_shards(tmp_path), corruptions=["clean", "contrast"])
    assert len(list(stream)) == 2
    assert stream.cache._cached == {}


def test_a_folder_in_the_layout_of_imagenet_c_gives_its_corruptions(tmp_path):
    for number, corruption in enumerate(("snow", "fog")):
        for label in ("a", "b"):
            folder = tmp_path / corruption / "5" / label
            folder.mkdir(parents=True)
            (folder / "0.png").write_bytes(png(number))
    stream = driftlaw.make_stream(tmp_path, workers=1)
    assert [batch.domain.name for batch in stream] == ["snow", "fog"]
    assert stream.num_classes == 2
    assert_equal(stream, driftlaw.make_stream(tmp_path))


def test_an_error_of_a_worker_is_that_of_the_stream_and_the_run_resumes_after_a_repair(tmp_path):
    pattern, model = write_shards(tmp_path), driftlaw.load_model("wrn_16_1-cifar10")

    def run(name, workers):
        stream = driftlaw.make_stream(pattern, batch_size=4, workers=workers)
        return driftlaw.run(stream, driftlaw.adapt(model, "norm"), record=tmp_path / name)

    expected = run("undisturbed.jsonl", 0)
    good = (tmp_path / "02.tar").read_bytes()
    start = good.index(png(13)[:60]) + 60
    (tmp_path / "02.tar").write_bytes(good[:start] + bytes(100) + good[start + 100 :])
    with pytest.raises(DataError, match=r"Sample '0013' in .*02.tar cannot be read as an image"):
        run("repaired.jsonl", 1)
    written = (tmp_path / "repaired.jsonl").read_bytes().splitlines()
    assert len(written) == 1 + 3  # the header and the batches before
    (tmp_path / "02.tar").write_bytes(good)
    record = run("repaired.jsonl", 1)
    assert (tmp_path / "repaired.jsonl").read_bytes().splitlines()[:4] == written
    assert [line["wrong"] for line in record.batches] == [line["wrong"] for line in expected.batches]
    (tmp_path / "02.tar").write_bytes(tar(samples(10, 4)))
    with pytest.raises(UsageError, match="contains the record of a different run"):
        run("repaired.jsonl", 0)


class Mortal:
    """The embedded images; a worker that reads them is killed."""

    def __init__(self):
        self.images_of = load_dataset("cifar10-embedded")
        for name in ("name", "num_classes", "class_names", "labels", "image_shape", "metadata"):
            setattr(self, name, getattr(self.images_of, name))

    def __len__(self):
        return len(self.labels)

    def images(self, indices):
        if get_worker_info() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.images_of.images(indices)


def test_a_worker_that_dies_is_an_error():
    stream = driftlaw.make_stream(Mortal(), limit=64, workers=1)
    with pytest.raises(DataError, match=r"A process that reads images has ended: .* Run the same command again"):
        driftlaw.run(stream, driftlaw.adapt(driftlaw.load_model("wrn_16_1-cifar10"), "norm"))


@pytest.mark.parametrize("workers", [-1, 1.5, True, 1000])
def test_wrong_numbers_of_workers_are_refused(workers):
    with pytest.raises(UsageError, match="Expected an integer from 0 to 256"):
        driftlaw.make_stream("embedded", workers=workers)


def test_workers_of_a_loader_belong_to_the_loader():
    with pytest.raises(UsageError, match="Pass a DataLoader with num_workers=2"):
        driftlaw.make_stream([torch.rand(2, 3, 8, 8)], workers=2)
