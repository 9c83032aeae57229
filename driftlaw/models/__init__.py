"""The networks, ours all with ``forward_features`` and ``forward_head``, and the loading of their weights."""

from driftlaw.models.catalogue import PUBLIC_WEIGHTS, ModelInfo, PublicWeights, build_model, list_models
from driftlaw.models.folding import fold_batch_norm
from driftlaw.models.loading import list_weights, load_model, save_model, weights_sha256
from driftlaw.models.normalise import NORMALISATIONS, Normalise
from driftlaw.models.public_weights import fetch_weights, verify_weights

__all__ = [
    "NORMALISATIONS",
    "PUBLIC_WEIGHTS",
    "ModelInfo",
    "Normalise",
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
