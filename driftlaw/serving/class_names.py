"""Names of the classes of a model."""

from torch import nn

from driftlaw.datasets import dataset_info
from driftlaw.errors import UsageError


def class_names(model: nn.Module) -> list[str]:
    """Return the names of a model's classes, if its weights name the dataset or its configuration has them.

    >>> import driftlaw
    >>> class_names(driftlaw.load_model("wrn_16_1-cifar10"))[:2]
    ['airplane', 'automobile']
    """
    labels = getattr(getattr(getattr(model, "network", None), "config", None), "id2label", None)  # Hugging Face
    if isinstance(labels, dict):
        return [str(labels.get(index, index)) for index in range(len(labels))]
    try:
        return list(dataset_info(str(getattr(model, "info", {}).get("dataset"))).class_names)
    except UsageError:
        return []
