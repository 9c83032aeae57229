"""Training of segmentation networks: crops, loss, encoder weights, and a short training."""

import pytest
import torch

from benchmarks.train import Training, train
from benchmarks.train.segmentation import CroppedBatches, SegmentationRecipe, segmentation_loss
from driftlaw.datasets import load_dataset
from driftlaw.models import build_model, load_model, save_model
from driftlaw.records import read_lines


def make_batches(**settings):
    """Return batches of images whose red channel is their label map."""
    labels = torch.arange(4 * 12 * 16, dtype=torch.int64).remainder(251).to(torch.uint8).view(4, 12, 16)
    images = labels[:, None].repeat(1, 3, 1, 1)
    recipe = SegmentationRecipe(batch_size=3, **settings)
    return CroppedBatches(images, labels, recipe, torch.Generator().manual_seed(0))


def test_images_and_label_maps_are_cropped_and_mirrored_alike():
    batches = make_batches(crop=(7, 9))
    found = list(batches)
    assert [len(images) for images, _ in found] == [3, 1]
    assert len(batches) == 2
    for images, labels in found:
        assert labels.shape[-2:] == (7, 9)
        assert torch.equal(images[:, 0].long(), labels)
    steps = torch.cat(
        [(labels[:, 0, 1] - labels[:, 0, 0]) for _, labels in [pair for _ in range(4) for pair in batches]]
    )
    assert {1, -1} <= set(steps.tolist())  # some are mirrored


def test_pixels_beyond_a_smaller_image_have_no_class():
    images, labels = next(iter(make_batches(crop=(12, 16), scales=(0.5, 0.5), flip=False)))
    assert (labels[:, 6:] == 255).all()
    assert (labels[:, :, 8:] == 255).all()
    assert (labels[:, :6, :8] != 255).all()
    assert (images[:, :, 6:] == 0).all()


def test_pixels_without_a_class_do_not_change_the_loss():
    model = torch.nn.Conv2d(3, 2, 1)
    images, labels = torch.randint(256, (1, 3, 4, 4), dtype=torch.uint8), torch.randint(2, (1, 4, 4))
    labels[0, 2:] = 255
    expected = segmentation_loss(model, images[:, :, :2], labels[:, :2])
    torch.testing.assert_close(segmentation_loss(model, images, labels), expected)


@pytest.mark.parametrize("pretrained", [False, True])
def test_a_short_training_writes_weights_and_mean_iou(tmp_path, pretrained):
    settings = {"epochs": 2, "sequences": ["0", "1"], "learning_rate": 1e-2, "warmup_epochs": 0.5}
    if pretrained:
        encoder = build_model("wrn_10_1", num_classes=3, normalize="half")
        save_model(encoder, tmp_path / "encoder.safetensors")
        settings |= {"encoder": str(tmp_path / "encoder.safetensors"), "encoder_rate": 1e-9, "weight_decay": 1e-9}
    dataset = load_dataset("shapes")
    recipe, weights = SegmentationRecipe(**settings), tmp_path / "net.safetensors"
    training = Training("fpn_wrn_10_1", dataset, dataset, recipe, weights, torch.device("cpu"))
    closing = train(training)
    losses = [line["loss"] for line in read_lines(training.record) if "epoch" in line]
    assert losses[1] < losses[0]
    model = load_model(weights, num_classes=5)
    assert model.info["mean_iou"] == closing["mean_iou"] > 0
    assert model.info["dataset"] == "shapes"
    if pretrained:
        assert model.info["normalise"] == {"mean": [0.5] * 3, "std": [0.5] * 3}
        torch.testing.assert_close(model.encoder.conv.weight, encoder.conv.weight)
