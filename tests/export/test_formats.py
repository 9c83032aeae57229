"""The files a network can be written to; what is true of all of them stands with the exports."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

from driftlaw.errors import UsageError
from driftlaw.export import FORMATS, export_adapter, export_network, find_format
from driftlaw.export.formats import is_of_ours
from driftlaw.methods import make_adapter
from tests.export.made_up import images, network


def test_a_suffix_chooses_the_format_and_another_is_refused():
    assert find_format(Path("a.pt2")) is FORMATS[".pt2"]
    with pytest.raises(UsageError, match=r"\.onnx"):
        find_format(Path("a.pth"))


def test_only_networks_that_can_be_built_by_name_are_ours():
    assert is_of_ours("wrn_22_3")
    assert not is_of_ours("timm:resnet18")


def has(*names: str) -> bool:
    try:
        for name in names:
            importlib.import_module(name)
    except ImportError:
        return False
    return True


@pytest.mark.skipif(has("onnx", "onnxscript"), reason="the packages are installed")
def test_without_its_packages_onnx_says_what_to_install(tmp_path):
    with pytest.raises(UsageError, match=r"driftlaw\[export\]"):
        export_network(network(), tmp_path / "out.onnx", images(4))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not has("onnx", "onnxscript"), reason="needs onnx and onnxscript")
@pytest.mark.parametrize("runtime", ["onnxruntime", "onnx.reference"])
def test_onnx_answers_as_the_adapter_for_any_number_of_images(tmp_path, monkeypatch, runtime):
    if not has(runtime):
        pytest.skip(f"needs {runtime}")
    if runtime == "onnx.reference":
        monkeypatch.setattr("driftlaw.export.formats._can_import", lambda name: name != "onnxruntime")
    adapter = make_adapter("tent", network().float(), {})
    batch = images(12).float()
    adapter(batch)
    done = export_adapter(adapter, tmp_path / "out.onnx", batch)
    form, expected = FORMATS[".onnx"], adapter.predict(batch)
    for count in (7, 1):
        torch.testing.assert_close(form.answer(done.path, batch[:count]), expected[:count], atol=1e-4, rtol=0)
    assert form.facts(done.path)["method"] == "tent"
    assert [path.name for path in tmp_path.iterdir()] == ["out.onnx"]
