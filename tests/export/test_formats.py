"""File formats; what all formats share is tested in test_adapter.py."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch

from driftlaw.errors import UsageError
from driftlaw.export import FORMATS, export_adapter, export_model, find_format
from driftlaw.methods import make_adapter
from driftlaw.models import build_model
from tests.export.small_model import images, small_model


def test_suffix_determines_the_format():
    assert find_format(Path("a.pt2")) is FORMATS[".pt2"]
    with pytest.raises(UsageError, match=r"\.onnx"):
        find_format(Path("a.pth"))


def test_safetensors_need_a_model_that_can_be_built_by_its_name():
    problem = FORMATS[".safetensors"].problem
    assert problem(build_model("wrn_22_3", num_classes=4)) is None
    assert "this is Identity" in problem(torch.nn.Identity())


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
    properties = importlib.import_module("onnx").load(result.path, load_external_data=False).metadata_props
    assert json.loads({entry.key: entry.value for entry in properties}["driftlaw"])["method"] == "tent"
    assert [path.name for path in tmp_path.iterdir()] == ["out.onnx"]
