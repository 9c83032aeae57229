"""Networks with ``forward_features`` and ``forward_head``, and loading of their weights."""

from driftlaw._deprecated import add_old_names
from driftlaw.models.fold_batch_norm import fold_batch_norm
from driftlaw.models.load import list_weights, load_model, save_model, verify_weights, weights_sha256
from driftlaw.models.normalize import NORMALIZATIONS, Normalize
from driftlaw.models.registry import PUBLIC_WEIGHTS, ModelInfo, PublicWeights, build_model, list_models
from driftlaw.models.rescale import rescale_batch_norm

__all__ = [
    "NORMALIZATIONS",
    "PUBLIC_WEIGHTS",
    "ModelInfo",
    "Normalize",
    "PublicWeights",
    "build_model",
    "fold_batch_norm",
    "list_models",
    "list_weights",
    "load_model",
    "rescale_batch_norm",
    "save_model",
    "verify_weights",
    "weights_sha256",
]

add_old_names(__name__)
