"""Class-balanced memory of images (CSTU, RoTTA): recent images with low entropy, about equally many per class."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

EMPTY = -1  # label of an empty slot


@dataclass
class MemorySlots:
    """What a memory knows about its images, on the host, one entry per slot.

    Attributes:
        labels: predicted class; ``EMPTY`` if the slot has no image.
        entropies: entropy of the prediction, in nats.
        ages: number of images offered since the image entered, itself included.
        sources: where the image comes from: its slot before this batch, or number of slots + index in the batch.
    """

    labels: list[int]
    entropies: list[float]
    ages: list[int]
    sources: list[int]

    def offer(self, label: int, entropy: float, index: int, num_classes: int) -> None:
        """Offer one image; it enters an empty slot, replaces an image with a higher score, or is left out.

        The score of an image is 1/(1 + exp(−age/slots)) + entropy/ln(classes). If the class has its share of the slots,
        slots/classes, the new image competes with its own class, otherwise with the largest classes.

        Args:
            label: predicted class.
            entropy: entropy of the prediction, in nats.
            index: index of the image in the batch.
            num_classes: number of classes.
        """
        size, counts = len(self.labels), Counter(self.labels)
        if counts[label] >= size / num_classes:
            rivals = [slot for slot in range(size) if self.labels[slot] == label]
        elif EMPTY in counts:
            rivals = [self.labels.index(EMPTY)]
        else:
            rivals = [slot for slot in range(size) if counts[self.labels[slot]] == max(counts.values())]

        def score(slot: int) -> float:
            if self.labels[slot] == EMPTY:
                return math.inf
            return 1 / (1 + math.exp(-self.ages[slot] / size)) + self.entropies[slot] / math.log(num_classes)

        worst = max(rivals, key=lambda slot: (score(slot), self.labels[slot], -self.ages[slot]))
        if score(worst) > 0.5 + entropy / math.log(num_classes):
            self.labels[worst], self.entropies[worst], self.ages[worst] = label, entropy, 0
            self.sources[worst] = size + index
        self.ages = [age + 1 for age in self.ages]

    def filled(self) -> list[int]:
        """Return the slots that contain an image, by class, the oldest image of a class first."""
        slots = [slot for slot, label in enumerate(self.labels) if label != EMPTY]
        return sorted(slots, key=lambda slot: (self.labels[slot], -self.ages[slot]))


class ClassBalancedMemory(nn.Module):
    """The images of a memory and what is known about them, as buffers.

    Decisions are made on the host for a whole batch: ``read``, ``MemorySlots.offer`` for each image, ``write``.

    Args:
        size: number of slots.
        like: a tensor of the device and dtype of the entropies.
    """

    images: Tensor
    labels: Tensor
    entropies: Tensor
    ages: Tensor

    def __init__(self, size: int, like: Tensor) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("images", like.new_empty(0), persistent=False)  # the size of an image is not known yet
        self.register_buffer("labels", torch.full((size,), EMPTY, device=like.device))
        self.register_buffer("entropies", like.new_zeros(size))
        self.register_buffer("ages", torch.zeros(size, dtype=torch.int64, device=like.device))

    def pool(self, batch: Tensor) -> Tensor:
        """Return the images of all slots and of a batch, in this order; images of another shape empty the memory."""
        if self.images.shape[1:] != batch.shape[1:]:
            self.images = batch.new_zeros(self.size, *batch.shape[1:])
            self.labels.fill_(EMPTY)
        return torch.cat([self.images, batch.to(self.images)])

    def read(self, *others: Tensor) -> tuple[MemorySlots, list[list[float]]]:
        """Return the slots and other vectors as host values, with one read from the device."""
        values = [self.labels, self.entropies, self.ages, *others]
        flat = iter(torch.cat([value.flatten().double() for value in values]).tolist())
        labels, entropies, ages, *rest = ([next(flat) for _ in range(value.numel())] for value in values)
        slots = MemorySlots([int(v) for v in labels], entropies, [int(v) for v in ages], list(range(self.size)))
        return slots, rest

    def write(self, slots: MemorySlots, pool: Tensor) -> None:
        """Store slots, and their images from the result of ``pool``."""
        self.labels.copy_(torch.tensor(slots.labels))
        self.entropies.copy_(torch.tensor(slots.entropies, dtype=torch.float64))
        self.ages.copy_(torch.tensor(slots.ages))
        self.images.copy_(pool[torch.tensor(slots.sources, device=pool.device)])

    def get_extra_state(self) -> dict[str, Any]:
        """Return the images."""
        return {"images": self.images}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what ``get_extra_state`` returned."""
        images = state["images"]
        if images.numel() and (images.ndim, len(images)) != (4, self.size):
            raise ValueError(f"the memory has images of shape {tuple(images.shape)}, expected {self.size}")
        self.images = images.to(self.images).clone()
