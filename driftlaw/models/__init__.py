"""The networks, ours all with ``forward_features`` and ``forward_head``, and the loading of their weights."""

from driftlaw.models.fold_batch_norm import fold_batch_norm
from driftlaw.models.load import list_weights, load_model, save_model, weights_sha256
from driftlaw.models.normalize import NORMALISATIONS, Normalize
from driftlaw.models.public_weights import fetch_weights, verify_weights
from driftlaw.models.registry import PUBLIC_WEIGHTS, ModelInfo, PublicWeights, build_model, list_models

__all__ = [
    "NORMALISATIONS",
    "PUBLIC_WEIGHTS",
    "ModelInfo",
    "Normalize",
    "PublicWeights",
    "build_model",
    "fetch_weights",
    "fold_batch_norm",
    "list_models",
    "list_weights",
    "load_model",
    "save_model",
    "verify_weights",
    "weights_sha256",
]
