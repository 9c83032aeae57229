"""File formats; what all formats share is tested in test_adapter.py."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from driftlaw.errors import UsageError
from driftlaw.export import FORMATS, export_adapter, export_model, find_format
from driftlaw.export.formats import can_build
from driftlaw.methods import make_adapter
from tests.export.small_model import images, small_model


def test_suffix_determines_the_format():
    assert find_format(Path("a.pt2")) is FORMATS[".pt2"]
    with pytest.raises(UsageError, match=r"\.onnx"):
        find_format(Path("a.pth"))


def test_can_build_knows_names_of_models():
    assert can_build("wrn_22_3")
    assert not can_build("timm:resnet18")


def has(*names: str) -> bool:
    try:
        for name in names:
            importlib.import_module(name)
    except ImportError:
        return False
    return True


@pytest.mark.skipif(has("onnx", "onnxscript"), reason="the packages are installed")
def test_onnx_without_its_packages_names_the_extra(tmp_path):
    with pytest.raises(UsageError, match=r"driftlaw\[export\]"):
        export_model(small_model(), tmp_path / "out.onnx", images(4))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not has("onnx", "onnxscript"), reason="needs onnx and onnxscript")
@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx.reference"])
def test_onnx_returns_the_adapters_logits_for_any_batch_size(tmp_path, monkeypatch, runtime):
    if not has(runtime):
        pytest.skip(f"needs {runtime}")
    if runtime == "onnx.reference":
        monkeypatch.setattr("driftlaw.export.formats._can_import", lambda name: name != "onnxruntime")
    adapter = make_adapter("tent", small_model().float(), {})
    batch = images(12).float()
    adapter(batch)
    result = export_adapter(adapter, tmp_path / "out.onnx", batch)
    form, expected = FORMATS[".onnx"], adapter.predict(batch)
    for count in (7, 1):
        torch.testing.assert_close(form.run(result.path, batch[:count]), expected[:count], atol=1e-4, rtol=0)
    assert form.read_metadata(result.path)["method"] == "tent"
    assert [path.name for path in tmp_path.iterdir()] == ["out.onnx"]
