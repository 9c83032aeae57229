"""Class-balanced memory: which image enters, which one leaves, and how it is stored."""

from __future__ import annotations

import torch

from driftlaw.components.memory import EMPTY, ClassBalancedMemory, MemorySlots


def slots_with(labels, entropies=None, ages=None) -> MemorySlots:
    size = len(labels)
    return MemorySlots(list(labels), list(entropies or [0.1] * size), list(ages or [1] * size), list(range(size)))


def test_an_image_enters_an_empty_slot_and_all_ages_grow():
    slots = slots_with([0, EMPTY, EMPTY, EMPTY], ages=[3, 0, 0, 0])
    slots.offer(1, 0.7, 5, 2)
    assert slots.labels == [0, 1, EMPTY, EMPTY]
    assert slots.ages[:2] == [4, 1]
    assert slots.entropies[1] == 0.7
    assert slots.sources[1] == 4 + 5


def test_a_class_with_its_share_replaces_its_own_image_with_the_highest_score():
    slots = slots_with([0, 0, EMPTY, EMPTY], entropies=[0.1, 0.6], ages=[1, 1, 0, 0])
    slots.entropies += [0.0, 0.0]
    slots.offer(0, 0.2, 0, 2)
    assert slots.labels == [0, 0, EMPTY, EMPTY]
    assert slots.entropies[:2] == [0.1, 0.2]


def test_an_image_with_a_higher_score_than_all_rivals_is_left_out():
    slots = slots_with([0, 0, 1, 1])
    slots.offer(0, 0.6, 0, 2)
    assert slots.sources == [0, 1, 2, 3]
    assert slots.ages == [2, 2, 2, 2]


def test_an_old_image_leaves_before_a_new_one_of_the_same_entropy():
    slots = slots_with([0, 0, 1, 1], ages=[1, 9, 20, 1])
    slots.offer(0, 0.1, 0, 2)
    assert slots.sources == [0, 4, 2, 3]


def test_a_rare_class_replaces_an_image_of_the_largest_class():
    slots = slots_with([0, 0, 0, 1], entropies=[0.1, 0.5, 0.2, 0.6])
    slots.offer(1, 0.3, 0, 2)
    assert slots.labels == [0, 1, 0, 1]


def test_images_are_listed_by_class_and_age():
    slots = slots_with([1, 0, EMPTY, 0], ages=[1, 2, 9, 5])
    assert slots.filled() == [3, 1, 0]


def test_reading_and_writing_keeps_everything():
    memory = ClassBalancedMemory(3, torch.zeros(1, dtype=torch.float64))
    batch = torch.arange(2.0).view(2, 1, 1, 1).expand(2, 3, 4, 4) + 1
    pool = memory.pool(batch)
    slots, (others,) = memory.read(torch.tensor([7.0, 8.0]))
    assert others == [7, 8]
    assert slots.labels == [EMPTY] * 3
    for index, entropy in enumerate([0.1, 1 / 3]):
        slots.offer(index, entropy, index, 2)
    memory.write(slots, pool)
    again, _ = memory.read()
    assert (again.labels, again.entropies, again.ages) == ([0, 1, EMPTY], [0.1, 1 / 3, 0.0], [2, 1, 2])
    assert memory.images[:, 0, 0, 0].tolist() == [1, 2, 0]


def test_images_of_another_shape_empty_the_memory():
    memory = ClassBalancedMemory(2, torch.zeros(1))
    memory.pool(torch.ones(1, 3, 4, 4))
    memory.labels.fill_(1)
    assert memory.pool(torch.ones(1, 3, 4, 4)).shape == (3, 3, 4, 4)
    assert memory.labels.tolist() == [1, 1]
    assert memory.pool(torch.ones(1, 3, 5, 5)).shape == (3, 3, 5, 5)
    assert memory.labels.tolist() == [EMPTY, EMPTY]
