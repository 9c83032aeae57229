"""A ring keeps the newest, and the nearest vote."""

from __future__ import annotations

import pytest
import torch

from driftlaw.components.feature_bank import FeatureBank


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def a_memory(size: int) -> FeatureBank:
    return FeatureBank(size, features=numbers(3), probabilities=numbers(2))


def test_the_newest_take_the_place_of_the_oldest():
    memory = FeatureBank(4, features=numbers(3), labels=torch.zeros((), dtype=torch.int64))
    for start, count in ((0, 3), (3, 2), (5, 1)):
        memory.store(features=numbers(count, 3), labels=torch.arange(start, start + count))
    assert sorted(memory.labels.tolist()) == [2, 3, 4, 5]
    assert memory.labels.dtype == torch.int64
    assert memory.stored == 6


def test_of_a_batch_that_does_not_fit_the_last_are_kept():
    memory = FeatureBank(4, features=numbers(3), labels=torch.zeros((), dtype=torch.int64))
    memory.store(features=numbers(1, 3), labels=torch.tensor([99]))
    memory.store(features=numbers(9, 3), labels=torch.arange(9))
    assert sorted(memory.labels.tolist()) == [5, 6, 7, 8]
    memory.store(features=numbers(1, 3), labels=torch.tensor([9]))
    assert sorted(memory.labels.tolist()) == [6, 7, 8, 9]


def test_features_are_kept_at_unit_length_and_without_a_graph():
    memory = a_memory(4)
    memory.store(features=numbers(2, 3).requires_grad_(), probabilities=numbers(2, 2))
    torch.testing.assert_close(memory.features[:2].norm(dim=1), torch.ones(2, dtype=torch.float64))
    assert not memory.features.requires_grad


def test_the_mean_of_the_nearest_is_the_vote():
    memory = a_memory(8)
    features, probabilities = numbers(6, 3), numbers(6, 2, seed=1).softmax(1)
    memory.store(features=features, probabilities=probabilities)
    asked = numbers(4, 3, seed=2)
    votes = memory.knn_predict(asked, neighbours=3)
    for feature, vote in zip(asked, votes, strict=True):
        cosines = [float(feature @ other / feature.norm() / other.norm()) for other in features]
        nearest = sorted(range(6), key=lambda place: -cosines[place])[:3]
        torch.testing.assert_close(vote, sum(probabilities[place] for place in nearest) / 3)


def test_places_that_were_never_filled_have_no_vote():
    memory = a_memory(8)
    probabilities = numbers(2, 2).softmax(1)
    memory.store(features=-torch.ones(2, 3, dtype=torch.float64), probabilities=probabilities)
    votes = memory.knn_predict(torch.ones(1, 3, dtype=torch.float64), neighbours=5)  # empty places are nearer: cosine 0
    torch.testing.assert_close(votes[0], probabilities.mean(0))


def test_an_empty_memory_says_nothing():
    assert torch.equal(a_memory(4).knn_predict(numbers(2, 3), neighbours=10), torch.zeros(2, 2, dtype=torch.float64))


def test_more_neighbours_than_places_is_all_of_them():
    memory = a_memory(3)
    probabilities = numbers(3, 2).softmax(1)
    memory.store(features=numbers(3, 3), probabilities=probabilities)
    torch.testing.assert_close(memory.knn_predict(numbers(1, 3, seed=5), neighbours=10)[0], probabilities.mean(0))


def test_the_size_never_changes_and_all_of_it_is_buffers():
    memory = a_memory(5)
    before = {name: value.shape for name, value in memory.state_dict().items()}
    for count in (2, 7, 5, 1):
        memory.store(features=numbers(count, 3), probabilities=numbers(count, 2))
    assert {name: value.shape for name, value in memory.state_dict().items()} == before
    assert set(before) == {"features", "probabilities", "stored"}


def test_gradients_flow_into_similarities():
    memory = a_memory(4)
    memory.store(features=numbers(2, 3), probabilities=numbers(2, 2))
    asked = numbers(2, 3, seed=4).requires_grad_()
    memory.similarities(asked).sum().backward()
    assert asked.grad.abs().sum() > 0


def test_storing_without_a_row_that_is_remembered_is_an_error():
    with pytest.raises(KeyError, match="probabilities"):
        a_memory(4).store(features=numbers(2, 3))
