"""tools/make_archive.py."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from driftlaw.corruptions import corrupt, list_corruptions
from driftlaw.datasets import ArrayImages, FolderArchive, load_dataset, open_archive, registry
from driftlaw.datasets.archives import MANIFEST
from driftlaw.errors import DataError, UsageError
from driftlaw.files import sha256_of
from tests.datasets import synthetic
from tools import make_archive as tool
from tools.make_archive import ArchiveWriter, main, make_archive

NAMES = ["gaussian_noise", "contrast"]
LABELS = np.array([2, 0, 1, 1])
IMAGES = np.random.default_rng(0).integers(0, 256, (20, 3, 5, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def dataset():
    embedded = load_dataset("cifar10-embedded")
    return ArrayImages("few", embedded.images(np.arange(12)), embedded.labels[:12], embedded.class_names)


def test_archive_contains_the_corrupted_images(dataset, tmp_path):
    assert make_archive(dataset, tmp_path, names=NAMES, seed=5) == NAMES
    archive = open_archive(tmp_path)
    assert archive.corruptions() == sorted(NAMES)
    assert archive.labels.tolist() == dataset.labels.tolist()
    assert archive.num_classes == 10
    images = torch.from_numpy(dataset.images([7, 2])).permute(0, 3, 1, 2)
    for name in NAMES:
        alone = corrupt(images, name, 4, seed=5, indices=torch.tensor([7, 2])).permute(0, 2, 3, 1).numpy()
        assert (archive.images(name, 4, [7, 2]) == alone).all()


def test_chunk_size_does_not_change_the_files(dataset, tmp_path, monkeypatch):
    make_archive(dataset, tmp_path / "one", names=NAMES)
    monkeypatch.setattr(tool, "PIXELS_PER_CHUNK", 5 * 32 * 32)
    make_archive(dataset, tmp_path / "many", names=NAMES)
    for name in NAMES:
        assert sha256_of(tmp_path / "one" / f"{name}.npy") == sha256_of(tmp_path / "many" / f"{name}.npy")


def test_progress_counts_all_severities(dataset, tmp_path):
    calls = []
    make_archive(dataset, tmp_path, names=["contrast"], progress=lambda *arguments: calls.append(arguments))
    assert calls[-1] == ("contrast", 60, 60)


def test_second_call_makes_only_missing_files(dataset, tmp_path):
    make_archive(dataset, tmp_path, names=["contrast"])
    assert make_archive(dataset, tmp_path, names=NAMES) == ["gaussian_noise"]
    assert make_archive(dataset, tmp_path, names=NAMES) == []


def test_another_seed_or_dataset_in_the_same_folder_raises(dataset, tmp_path):
    make_archive(dataset, tmp_path, names=["contrast"], seed=0)
    with pytest.raises(DataError, match="another recipe"):
        make_archive(dataset, tmp_path, names=["contrast"], seed=1)
    fewer = ArrayImages("fewer", dataset.images(np.arange(10)), dataset.labels[:10], dataset.class_names)
    with pytest.raises(DataError, match="another recipe"):
        make_archive(fewer, tmp_path, names=["contrast"], seed=0)


def test_unknown_corruption_raises_before_writing(dataset, tmp_path):
    with pytest.raises(UsageError, match="Did you mean 'fog'"):
        make_archive(dataset, tmp_path / "out", names=["contrast", "fogg"])
    assert os.listdir(tmp_path) == []


def test_default_is_the_benchmark(dataset, tmp_path):
    two = ArrayImages("two", dataset.images([0, 1]), dataset.labels[:2], dataset.class_names)
    assert make_archive(two, tmp_path) == list_corruptions("benchmark")


def write(folder, names=("fog",), images=IMAGES, **settings):
    writer = ArchiveWriter(folder, 4, LABELS, **settings)
    return [writer.write(name, np.split(images, 4)) for name in names]


def test_written_files_have_the_official_layout(tmp_path):
    assert write(tmp_path / "out") == [True]
    assert (np.load(tmp_path / "out" / "fog.npy") == IMAGES).all()
    assert np.load(tmp_path / "out" / "labels.npy").tolist() == LABELS.tolist() * 5
    assert sorted(os.listdir(tmp_path / "out")) == [MANIFEST, "fog.npy", "labels.npy"]


def test_written_archive_states_its_recipe(tmp_path):
    write(tmp_path, recipe={"seed": 3}, num_classes=10)
    archive = open_archive(tmp_path)
    assert archive.num_classes == 10
    assert archive.metadata()["origin"] == "made by driftlaw"
    assert archive.metadata()["recipe"] == {"seed": 3}
    assert archive.metadata()["files"]["fog.npy"] == sha256_of(tmp_path / "fog.npy")
    assert archive.verify() == []


def test_finished_files_are_skipped(tmp_path):
    write(tmp_path, ["fog"])
    before = (tmp_path / "fog.npy").stat().st_mtime_ns
    assert write(tmp_path, ["fog", "frost"]) == [False, True]
    assert (tmp_path / "fog.npy").stat().st_mtime_ns == before
    assert open_archive(tmp_path).corruptions() == ["fog", "frost"]


def test_changed_file_is_reported_and_made_again(tmp_path):
    write(tmp_path)
    changed = IMAGES.copy()
    changed[0] = 0
    np.save(tmp_path / "fog.npy", changed)
    assert "the manifest says" in open_archive(tmp_path).verify()[0]
    assert write(tmp_path) == [True]
    assert open_archive(tmp_path).verify() == []


def test_missing_file_is_reported(tmp_path):
    write(tmp_path, ["fog", "frost"])
    (tmp_path / "fog.npy").unlink()
    assert "is missing" in open_archive(tmp_path).verify()[0]


def test_failure_leaves_no_partial_file_and_leftovers_are_removed(tmp_path):
    def interrupted():
        yield IMAGES[:10]
        raise KeyboardInterrupt

    writer = ArchiveWriter(tmp_path, 4, LABELS)
    with pytest.raises(KeyboardInterrupt):
        writer.write("fog", interrupted())
    assert sorted(os.listdir(tmp_path)) == [MANIFEST, "labels.npy"]
    for name in (".fog.a1b2c3d4.part.npy", ".driftlaw-manifest.a1b2c3d4.part.json"):  # of a killed process
        (tmp_path / name).write_bytes(b"half")
    write(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [MANIFEST, "fog.npy", "labels.npy"]


def test_files_of_the_user_are_not_deleted(tmp_path):
    names = [".fog.part.npy", ".notes.a1b2c3d4.part.npy", ".fog.a1b2c3d4.part.npy.bak", ".fog.A1B2C3D4.part.npy"]
    writer = ArchiveWriter(tmp_path, 4, LABELS)
    for name in names:
        (tmp_path / name).write_bytes(b"precious")
    writer.write("fog", [IMAGES])
    ArchiveWriter(tmp_path, 4, LABELS)
    assert sorted(os.listdir(tmp_path)) == sorted([MANIFEST, "fog.npy", "labels.npy", *names])


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        ([], "No images"),
        ([IMAGES[:15]], "found 15 images; expected 20"),
        ([IMAGES.astype(np.float32)], "a chunk is float32"),
        ([IMAGES[:10], IMAGES[10:, 1:]], "a chunk is uint8"),
    ],
)
def test_invalid_chunks_raise_and_leave_nothing(tmp_path, chunks, message):
    with pytest.raises(UsageError, match=message):
        ArchiveWriter(tmp_path, 4, LABELS).write("fog", chunks)
    assert not (tmp_path / "fog.npy").exists()


def test_archive_of_another_recipe_raises(tmp_path):
    write(tmp_path, recipe={"seed": 0})
    with pytest.raises(DataError, match="another recipe"):
        ArchiveWriter(tmp_path, 4, LABELS, recipe={"seed": 1})


def test_official_files_are_never_overwritten(tmp_path):
    np.save(tmp_path / "fog.npy", IMAGES)
    with pytest.raises(DataError, match="driftlaw did not make them"):
        ArchiveWriter(tmp_path, 4, LABELS)


def test_labels_of_wrong_length_raise(tmp_path):
    with pytest.raises(UsageError, match="one label per image"):
        ArchiveWriter(tmp_path, 5, LABELS)


def test_imagenet_c_layout_is_read_back(dataset, tmp_path):
    assert make_archive(dataset, tmp_path, names=["contrast"], layout="imagenet-c") == ["contrast"]
    assert make_archive(dataset, tmp_path, names=["contrast"], layout="imagenet-c") == []
    archive = open_archive(tmp_path)
    assert isinstance(archive, FolderArchive)
    assert archive.verify() == []
    assert np.bincount(archive.labels).tolist() == np.bincount(dataset.labels)[np.unique(dataset.labels)].tolist()
    with pytest.raises(DataError, match="another recipe"):
        make_archive(dataset, tmp_path, names=["contrast"], layout="imagenet-c", seed=1)


def test_images_of_the_imagenet_c_layout_are_encoded_once(tmp_path):
    folder = tmp_path / "images" / "class"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    Image.fromarray(generator.integers(0, 256, (72, 80, 3), np.uint8)).save(folder / "a.png")
    large = load_dataset(f"folder:{folder.parent}")
    make_archive(large, tmp_path / "made", names=["contrast"], layout="imagenet-c")
    made = open_archive(tmp_path / "made").images("contrast", 5, np.array([0]))
    clean = torch.from_numpy(large.images([0])).permute(0, 3, 1, 2)
    expected = corrupt(clean, "contrast", 5).permute(0, 2, 3, 1).numpy()
    assert np.abs(made.astype(np.int16) - expected).mean() < 0.3  # 0 with libjpeg-turbo


def test_imagenet_c_folders_of_others_are_never_overwritten(dataset, tmp_path):
    (tmp_path / "contrast").mkdir()
    with pytest.raises(DataError, match="driftlaw did not make it"):
        make_archive(dataset, tmp_path, names=["contrast"], layout="imagenet-c")


@pytest.fixture
def image_folder(tmp_path):
    rng = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(3):
            noise = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(noise).save(tmp_path / "images" / label / f"{number}.png")
    return f"folder:{tmp_path / 'images'}"


def test_command_writes_an_archive_and_skips_finished_files(image_folder, tmp_path, capsys):
    words = ["cifar10-c", "--dataset", image_folder, "--out", str(tmp_path / "out"), "--device", "cpu", "--json"]
    main([*words, "--corruptions", "contrast"])
    assert json.loads(capsys.readouterr().out) == {"folder": str(tmp_path / "out"), "made": ["contrast"], "skipped": []}
    main([*words, "--corruptions", "contrast, brightness"])
    second = json.loads(capsys.readouterr().out)
    assert (second["made"], second["skipped"]) == (["brightness"], ["contrast"])
    assert len(open_archive(tmp_path / "out")) == 6


def test_command_writes_known_archives_into_the_data_directory(tmp_path, monkeypatch):
    data = synthetic.splits()
    monkeypatch.setitem(registry.DATASETS, "cifar10", synthetic.info(data))
    synthetic.write_folder(data, tmp_path)
    main(["cifar10-c", "--corruptions", "contrast", "--data-dir", str(tmp_path), "--device", "cpu"])
    assert open_archive("cifar10-c", data_dir=tmp_path).corruptions() == ["contrast"]


def test_command_needs_a_folder_for_other_datasets(image_folder):
    with pytest.raises(UsageError, match="Pass --out"):
        main(["cifar10-c", "--dataset", image_folder])
    with pytest.raises(UsageError, match="Did you mean the archive cifar100-c"):
        main(["cifar10-c", "--dataset", "cifar100"])


def test_killed_command_resumes_to_the_same_bytes(tmp_path):
    words = ["cifar10-c", "--dataset", "cifar10-embedded", "--device", "cpu"]
    words += ["--corruptions", "contrast,brightness,gaussian_noise", "--out"]
    program = [sys.executable, "-m", "tools.make_archive", *words, str(tmp_path / "killed")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(tool.__file__).parents[1])}
    first_file = tmp_path / "killed" / "contrast.npy"
    with subprocess.Popen(program, env=environment) as process:
        while not first_file.exists() and process.poll() is None:
            time.sleep(0.005)
        assert process.poll() is None, "the command finished before it could be killed"
        process.kill()
    assert not (tmp_path / "killed" / "gaussian_noise.npy").exists()
    main([*words, str(tmp_path / "killed")])
    main([*words, str(tmp_path / "uninterrupted")])
    names = sorted(os.listdir(tmp_path / "uninterrupted"))
    assert sorted(os.listdir(tmp_path / "killed")) == names
    for name in names:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "uninterrupted" / name).read_bytes()
