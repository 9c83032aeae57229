"""Comparison with the original archives' code, by statistics that were measured on its output."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from driftlaw.corruptions import CORRUPTIONS, corrupt
from driftlaw.datasets import load_dataset

NUMBERS = json.loads(Path(__file__).with_name("original_statistics.json").read_text())
BENCHMARK = [corruption for corruption in CORRUPTIONS if corruption.kind == "benchmark"]
CASES = [(corruption.name, severity) for corruption in BENCHMARK for severity in (2, 4)]


def statistics(images, clean):
    images, clean = images.astype(np.float32), clean.astype(np.float32)
    grey = images.mean(3)
    around = grey[:, :-2, 1:-1] + grey[:, 2:, 1:-1] + grey[:, 1:-1, :-2] + grey[:, 1:-1, 2:]
    return {
        "mean": images.mean(),
        "std": images.std((0, 1, 2)).mean(),
        "absdiff": np.abs(images - clean).mean(),
        "rmsdiff": np.sqrt(((images - clean) ** 2).mean()),
        "lap": np.abs(4 * grey[:, 1:-1, 1:-1] - around).mean(),
        "imgstd": images.reshape(len(images), -1).std(1).mean(),
    }


@pytest.fixture(scope="module")
def clean():
    return load_dataset("cifar10-embedded").images(np.arange(2000))


@pytest.fixture(scope="module")
def our_clean(clean):
    return statistics(clean, clean)


@pytest.mark.parametrize(("name", "severity"), CASES)
def test_statistics_are_those_of_the_original(name, severity, clean, our_clean):
    # The 2,000 images differ, so the change from the clean images is compared.
    images = torch.from_numpy(np.ascontiguousarray(clean.transpose(0, 3, 1, 2)))
    ours = statistics(corrupt(images, name, severity).permute(0, 2, 3, 1).numpy(), clean)
    original = {field: np.mean(value) for field, value in NUMBERS["originals"][f"{name}/{severity}"].items()}
    original_clean = {field: np.mean(value) for field, value in NUMBERS["originals"]["clean"].items()}
    assert ours["mean"] - our_clean["mean"] == pytest.approx(original["mean"] - original_clean["mean"], abs=1.5)
    for field in ("std", "lap", "imgstd"):
        assert ours[field] / our_clean[field] == pytest.approx(original[field] / original_clean[field], rel=0.03), field
    for field in ("absdiff", "rmsdiff"):
        assert ours[field] == pytest.approx(original[field], rel=0.03), field


@pytest.mark.parametrize(("name", "severity"), CASES)
def test_the_record_on_the_originals_own_images_agrees_within_two_per_cent(name, severity):
    original, ours = (NUMBERS[which][f"{name}/{severity}"] for which in ("originals", "ours"))
    for field, value in original.items():
        assert np.mean(ours[field]) == pytest.approx(np.mean(value), rel=0.02), field


def test_the_record_holds_every_corruption_without_randomness_within_two_gray_levels():
    differences = NUMBERS["pixel_difference"]["values"]
    without_chance = {f"{one.name}/{severity}" for one in BENCHMARK if not one.random for severity in (2, 4)}
    assert set(differences) == without_chance
    assert max(differences.values()) < 2
