"""tools/imagecorruptions_archive.py, with a stand-in for the package."""

import sys
import types

import numpy as np
import pytest
from PIL import Image

from driftlaw.datasets import open_archive
from tools import imagecorruptions_archive


@pytest.fixture
def package(monkeypatch):
    """A package whose only corruption sets all pixels to one random number."""

    def corrupt(image, corruption_name, severity):
        assert (corruption_name, severity) == ("fog", 5)
        return np.full_like(image, np.random.randint(256))

    module = types.ModuleType("imagecorruptions")
    module.corrupt = corrupt
    module.corruptions = types.SimpleNamespace(gaussian=lambda image, sigma, **options: options)
    monkeypatch.setitem(sys.modules, "imagecorruptions", module)
    monkeypatch.setattr(np, "float_", None, raising=False)
    return module


def test_archive_has_the_images_and_classes_of_the_folder(package, tmp_path):
    for name in ("a/1.JPEG", "a/2.JPEG", "b/3.JPEG"):
        path = tmp_path / "val" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (80, 80)).save(path)
    assert imagecorruptions_archive.corrupt_folder(tmp_path / "val", tmp_path / "c", "fog") == 3
    archive = open_archive(tmp_path / "c")
    assert (archive.corruptions(), archive.labels.tolist()) == (["fog"], [0, 0, 1])
    first = archive.images("fog", 5, [0, 1, 2])
    assert len({int(image.mean()) for image in first}) == 3
    assert imagecorruptions_archive.corrupt_folder(tmp_path / "val", tmp_path / "c", "fog") == 0
    (tmp_path / "c" / "fog" / "5" / "a" / "2.JPEG").unlink()
    assert imagecorruptions_archive.corrupt_folder(tmp_path / "val", tmp_path / "c", "fog") == 1
    assert np.array_equal(open_archive(tmp_path / "c").images("fog", 5, [0, 1, 2]), first)


def test_removed_names_are_restored(package):
    imagecorruptions_archive.restore_removed_names()
    assert np.float_ is np.float64
    assert package.corruptions.gaussian(None, sigma=2, multichannel=True) == {"channel_axis": -1}
    assert package.corruptions.gaussian(None, 2, mode="reflect") == {"mode": "reflect"}
