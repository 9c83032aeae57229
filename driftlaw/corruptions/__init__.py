"""Image corruptions: the fifteen of CIFAR-C and ImageNet-C and the four held out for tuning, batched and seeded."""

from typing import TYPE_CHECKING, Any

from driftlaw.corruptions.registry import CORRUPTIONS, Corruption, find_corruption, is_large, list_corruptions

if TYPE_CHECKING:
    from driftlaw.corruptions.pipeline import corrupt

__all__ = ["CORRUPTIONS", "Corruption", "corrupt", "find_corruption", "is_large", "list_corruptions"]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that commands can list names and severities without importing torch.
    if name == "corrupt":
        from driftlaw.corruptions.pipeline import corrupt

        return corrupt
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
