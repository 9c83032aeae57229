"""`driftlaw data`."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from driftlaw.cli.data import app
from driftlaw.datasets import open_archive
from driftlaw.datasets import registry as catalogue
from driftlaw.errors import DataError, UsageError
from tests.datasets import made_up


def call(*words):
    """Return the exit code and what went to stdout; errors that the command line would print are raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.fixture
def published(monkeypatch):
    data = made_up.splits()
    monkeypatch.setitem(catalogue.CATALOGUE, "cifar10", made_up.info(data))
    return data


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "pictures" / label).mkdir(parents=True)
        for number in range(3):
            noise = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "pictures" / label / f"{number}.png")
    return f"folder:{tmp_path / 'pictures'}"


def test_list_says_what_is_here(published, tmp_path):
    rows = {row["name"]: row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1])}
    assert rows["cifar10-embedded"]["present"] is True
    assert rows["cifar10"]["present"] is False
    assert rows["cifar10-c"]["kind"] == "archive"
    made_up.write_folder(published, tmp_path)
    rows = {row["name"]: row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1])}
    assert rows["cifar10"]["present"] is True


def test_list_is_also_for_people(tmp_path):
    code, text = call("list", "--data-dir", tmp_path)
    assert code == 0
    assert "cifar10-embedded" in text
    assert "Data folder" in text


def test_get_finds_what_is_there(published, tmp_path):
    folder = made_up.write_folder(published, tmp_path)
    assert json.loads(call("get", "cifar10", "--data-dir", tmp_path, "--json")[1])["folder"] == str(folder)


def test_get_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_CIFAR10_URL", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"Put cifar-10-python\.tar\.gz"):
        call("get", "cifar10", "--data-dir", tmp_path)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cifar10-c", "driftlaw data make cifar10-c"),
        ("cifar100-c", "driftlaw data make cifar100-c"),
        ("imagenet-c", "put the official class folders"),
        ("imagenet", "put its class folders into"),
        ("cifar10-embedded", "needs no fetching"),
        ("cifr10", "Did you mean"),
    ],
)
def test_get_refuses_what_cannot_be_fetched(name, told):
    with pytest.raises(UsageError, match=told):
        call("get", name)


def test_make_writes_an_archive_and_goes_on_where_it_stopped(pictures, tmp_path):
    words = ["make", "cifar10-c", "--dataset", pictures, "--out", tmp_path / "out", "--device", "cpu", "--json"]
    first = json.loads(call(*words, "--corruptions", "contrast")[1])
    assert first == {"folder": str(tmp_path / "out"), "made": ["contrast"], "skipped": []}
    second = json.loads(call(*words, "--corruptions", "contrast, brightness")[1])
    assert (second["made"], second["skipped"]) == (["brightness"], ["contrast"])
    assert len(open_archive(tmp_path / "out")) == 6
    assert call("verify", tmp_path / "out") == (0, f"{tmp_path / 'out'}: good (sha256 of every file)\n")


def test_make_puts_the_archive_of_a_known_dataset_under_the_data_folder(published, tmp_path):
    made_up.write_folder(published, tmp_path)
    call("make", "cifar10-c", "--corruptions", "contrast", "--data-dir", tmp_path, "--device", "cpu")
    assert open_archive("cifar10-c", data_dir=tmp_path).corruptions() == ["contrast"]
    assert call("verify", "cifar10-c", "--data-dir", tmp_path)[0] == 0


def test_make_writes_cifar100_c_of_the_split_that_is_there(tmp_path):
    made_up.write_mosaics(made_up.splits(per_class=1, classes=100), tmp_path)
    with pytest.warns(UserWarning, match="not known here"):
        call("make", "cifar100-c", "--corruptions", "contrast", "--data-dir", tmp_path, "--device", "cpu")
    archive = open_archive("cifar100-c", data_dir=tmp_path)
    assert (archive.corruptions(), len(archive), archive.num_classes) == (["contrast"], 100, 100)
    assert call("verify", "cifar100-c", "--data-dir", tmp_path)[0] == 0
    rows = {row["name"]: row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1])}
    assert rows["cifar100-c"]["present"] is True
    assert rows["imagenet-c"]["present"] is False


def test_verify_looks_for_every_picture_of_imagenet_c(tmp_path):
    for severity in range(1, 6):
        place = tmp_path / "ImageNet-C" / "fog" / str(severity) / "n00000001"
        place.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(place / "a.JPEG")
    assert "every picture is there" in call("verify", "imagenet-c", "--data-dir", tmp_path)[1]
    (place / "a.JPEG").unlink()
    with pytest.raises(DataError, match="lacks 1 of 1 pictures"):
        call("verify", "imagenet-c", "--data-dir", tmp_path)


def test_make_asks_for_a_folder_where_it_knows_none(pictures):
    with pytest.raises(UsageError, match="--out"):
        call("make", "cifar10-c", "--dataset", pictures)
    with pytest.raises(UsageError, match="Did you mean 'cifar10-c'"):
        call("make", "cifar10c")


def test_make_writes_the_embedded_set(tmp_path, monkeypatch):
    data = made_up.splits(per_class=200)
    monkeypatch.setitem(catalogue.CATALOGUE, "cifar10", made_up.info(data))
    made_up.write_folder(data, tmp_path)
    answer = json.loads(call("make", "cifar10-embedded", "--data-dir", tmp_path, "--out", tmp_path / "e", "--json")[1])
    assert sorted(os.listdir(tmp_path / "e")) == sorted(os.path.basename(path) for path in answer["files"])


def test_verify_reads_datasets_folders_and_pictures(published, pictures, tmp_path):
    folder = made_up.write_folder(published, tmp_path)
    for name in ("cifar10", "cifar10-embedded", folder, tmp_path, pictures):
        assert call("verify", name, "--data-dir", tmp_path)[0] == 0


def test_verify_tells_every_problem(published, pictures, tmp_path):
    (made_up.write_folder(published, tmp_path) / "test_batch").write_bytes(b"")
    with pytest.raises(DataError, match="test_batch cannot be read"):
        call("verify", "cifar10", "--data-dir", tmp_path)
    code, text = call("verify", "cifar10", "--data-dir", tmp_path, "--json")
    assert code == 1
    assert json.loads(text)["ok"] is False
    assert len(json.loads(text)["problems"]) == 1
    picture = tmp_path / "pictures" / "dog" / "1.png"
    picture.write_bytes(picture.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"1\.png"):
        call("verify", pictures)


def test_verify_of_something_unknown_names_the_nearest(tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'cifar10-c'"):
        call("verify", "cifar10c")
    with pytest.raises(DataError, match=r"labels\.npy is missing"):
        call("verify", tmp_path)


def test_a_killed_make_goes_on_and_ends_in_the_same_bytes(tmp_path):
    words = ["make", "cifar10-c", "--dataset", "cifar10-embedded", "--device", "cpu"]
    words += ["--corruptions", "contrast,brightness,gaussian_noise", "--out"]
    program = [sys.executable, "-m", "driftlaw", "data"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([*program, *words, tmp_path / "killed"], env=one_thread) as killed:
        _wait_for(tmp_path / "killed" / "contrast.npy", killed)
        killed.kill()
    assert (tmp_path / "killed" / "contrast.npy").exists()
    call(*words, tmp_path / "killed")
    call(*words, tmp_path / "whole")
    names = sorted(os.listdir(tmp_path / "whole"))
    assert sorted(os.listdir(tmp_path / "killed")) == names
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def _wait_for(path, process):
    for _ in range(3000):
        if path.exists() or process.poll() is not None:
            return
        time.sleep(0.01)


def test_public_weights_are_listed_fetched_and_verified(tmp_path, monkeypatch):
    def fetch(name, *, data_dir, tell):
        tell("fetching …")
        path = data_dir / "weights" / f"{name}.safetensors"
        path.parent.mkdir()
        path.touch()
        return path

    monkeypatch.setattr("driftlaw.models.fetch_weights", fetch)
    monkeypatch.setattr("driftlaw.models.verify_weights", lambda name, data_dir: [])
    rows = {row["name"]: row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1])}
    assert rows["resnet50-imagenet"]["present"] is False
    assert rows["resnet50-imagenet"]["kind"] == "weights"
    code, text = call("get", "resnet50-imagenet", "--data-dir", tmp_path, "--json")
    assert code == 0
    assert json.loads(text)["file"] == str(tmp_path / "weights" / "resnet50-imagenet.safetensors")
    rows = {row["name"]: row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1])}
    assert rows["resnet50-imagenet"]["present"] is True
    assert "good (sha256 of all weights)" in call("verify", "resnet50-imagenet", "--data-dir", tmp_path)[1]


def test_the_command_knows_the_weights_that_the_library_knows(tmp_path):
    from driftlaw.models import PUBLIC_WEIGHTS

    rows = [row for row in json.loads(call("list", "--json", "--data-dir", tmp_path)[1]) if row["kind"] == "weights"]
    assert [(row["name"], row["title"], row["licence"], row["num_classes"]) for row in rows] == [
        (info.name, info.title, info.licence, info.num_classes) for info in PUBLIC_WEIGHTS.values()
    ]
