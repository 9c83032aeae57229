"""Streams of datasets with label maps: temporal order, corruptions, sequences as domains."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.corruptions import corrupt, list_corruptions
from driftlaw.datasets import load_dataset
from driftlaw.errors import UsageError
from driftlaw.streams import make_stream


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sequences of three and two frames of 24 × 40 pixels."""
    folder, generator = tmp_path_factory.mktemp("frames"), np.random.default_rng(0)
    for name in ("day/1", "day/2", "day/10", "dusk/1", "dusk/2"):
        for kind, shape in (("images", (24, 40, 3)), ("labels", (24, 40))):
            (folder / kind / name).parent.mkdir(parents=True, exist_ok=True)
            values = generator.integers(0, 256 if kind == "images" else 3, shape, dtype=np.uint8)
            Image.fromarray(values).save(folder / kind / f"{name}.png")
    (folder / "classes.json").write_text(json.dumps({"names": ["road", "sky", "car"]}))
    return folder


def test_frames_and_label_maps_are_in_temporal_order_in_every_domain(folder):
    stream, dataset = make_stream(folder, corruptions=["clean", "fog"], batch_size=2), load_dataset(f"folder:{folder}")
    clean = torch.from_numpy(dataset.images(range(5))).permute(0, 3, 1, 2)
    batches = list(stream)
    assert [(batch.domain.name, len(batch.images)) for batch in batches[2:4]] == [("clean", 1), ("fog", 2)]
    for start in (0, 3):
        labels = torch.cat([batch.labels for batch in batches[start : start + 3]])
        assert torch.equal(labels, torch.from_numpy(dataset.label_maps(range(5))))
    foggy = torch.cat([batch.images for batch in batches[3:]])
    assert torch.equal((foggy * 255).round().to(torch.uint8), corrupt(clean, "fog", 5))
    assert torch.equal(next(stream.iter_from(4)).labels, batches[4].labels)
    recipe = json.loads(json.dumps(stream.recipe()))
    assert recipe["order"] == "as-is"
    assert "sequences" not in recipe
    assert make_stream(recipe).recipe() == stream.recipe()


def test_sequences_are_domains_that_may_recur(folder):
    options = {"sequences": ["dusk", "day"], "batch_size": 2}
    stream = make_stream(folder, schedule="recurring", rounds=2, **options)
    found = [(batch.domain.name, batch.domain.round, len(batch.images), batch.starts_domain) for batch in stream]
    assert found[:3] == [("dusk", 0, 2, True), ("day", 0, 2, True), ("day", 0, 1, False)]
    assert found[3:] == [(name, 1, count, starts) for name, _, count, starts in found[:3]]
    dataset = load_dataset(f"folder:{folder}")
    assert torch.equal(next(iter(stream)).labels, torch.from_numpy(dataset.label_maps([3, 4])))
    assert make_stream(json.loads(json.dumps(stream.recipe()))).recipe() == stream.recipe()
    assert [len(batch.images) for batch in make_stream(folder, limit=1, **options)] == [1, 1]
    assert sum(len(batch.images) for batch in stream.clean(4)) == 4


def test_settings_that_need_other_data_are_refused(folder):
    for changes, message in (
        ({"sequences": ["night"]}, "no sequence 'night'. It has: day, dusk"),
        ({"sequences": ["day"], "corruptions": ["fog"]}, "sequences are uncorrupted domains"),
        ({"order": "dirichlet"}, "needs a label per image"),
    ):
        with pytest.raises(UsageError, match=message):
            make_stream(folder, **changes)
    with pytest.raises(UsageError, match="has no sequence 'day'"):
        make_stream("embedded", sequences=["day"])


@pytest.mark.parametrize("name", list_corruptions("all"))
def test_corruptions_accept_frames_of_any_shape(name):
    images = torch.rand(1, 3, 72, 100, generator=torch.Generator().manual_seed(0))
    landscape, portrait = (corrupt(image, name, 5, encoding="none") for image in (images, images.mT))
    assert landscape.shape == images.shape
    assert portrait.shape == images.mT.shape
    for result in (landscape, portrait):
        assert result.isfinite().all()
        assert (result[:, :, -8:, -8:] - result[:, :, :8, :8]).abs().max() > 0  # the last corner is not empty
