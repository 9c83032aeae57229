"""The networks, all with ``forward_features`` and ``forward_head``, and the loading of their weights."""

from driftlaw.models.catalogue import ModelInfo, build_model, list_models
from driftlaw.models.loading import list_weights, load_model, save_model, weights_sha256

__all__ = ["ModelInfo", "build_model", "list_models", "list_weights", "load_model", "save_model", "weights_sha256"]
