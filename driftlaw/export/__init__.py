"""Export of adapted models: fixed BatchNorm statistics, folded layers, and a comparison of the file with the model.

>>> import tempfile, torch, driftlaw
>>> adapter = driftlaw.adapt(driftlaw.load_model("wrn_16_1-cifar10"), "tent")
>>> images = torch.rand(16, 3, 32, 32)
>>> logits = adapter(images)
>>> with tempfile.TemporaryDirectory() as folder:
...     export_adapter(adapter, f"{folder}/camera.pt2", images).max_difference < 1e-3
True
"""

from driftlaw._deprecated import add_old_names
from driftlaw.export.adapter import ExportResult, export_adapter, export_model
from driftlaw.export.formats import FORMATS, find_format
from driftlaw.export.inference_module import extract_model
from driftlaw.export.state import load_model_for_state, read_state, restore_adapter

__all__ = [
    "FORMATS",
    "ExportResult",
    "export_adapter",
    "export_model",
    "extract_model",
    "find_format",
    "load_model_for_state",
    "read_state",
    "restore_adapter",
]

add_old_names(__name__)
