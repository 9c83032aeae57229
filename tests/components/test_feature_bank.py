"""The ring buffer keeps the newest features, and the nearest neighbors predict."""

from __future__ import annotations

import pytest
import torch

from driftlaw.components.feature_bank import FeatureBank


def random_tensor(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def empty_bank(size: int) -> FeatureBank:
    return FeatureBank(size, features=random_tensor(3), probabilities=random_tensor(2))


def test_new_images_replace_the_oldest():
    bank = FeatureBank(4, features=random_tensor(3), labels=torch.zeros((), dtype=torch.int64))
    for start, count in ((0, 3), (3, 2), (5, 1)):
        bank.store(features=random_tensor(count, 3), labels=torch.arange(start, start + count))
    assert sorted(bank.labels.tolist()) == [2, 3, 4, 5]
    assert bank.labels.dtype == torch.int64
    assert bank.stored == 6


def test_of_a_batch_larger_than_the_bank_the_last_images_are_kept():
    bank = FeatureBank(4, features=random_tensor(3), labels=torch.zeros((), dtype=torch.int64))
    bank.store(features=random_tensor(1, 3), labels=torch.tensor([99]))
    bank.store(features=random_tensor(9, 3), labels=torch.arange(9))
    assert sorted(bank.labels.tolist()) == [5, 6, 7, 8]
    bank.store(features=random_tensor(1, 3), labels=torch.tensor([9]))
    assert sorted(bank.labels.tolist()) == [6, 7, 8, 9]


def test_features_are_stored_with_unit_length_and_without_a_graph():
    bank = empty_bank(4)
    bank.store(features=random_tensor(2, 3).requires_grad_(), probabilities=random_tensor(2, 2))
    torch.testing.assert_close(bank.features[:2].norm(dim=1), torch.ones(2, dtype=torch.float64))
    assert not bank.features.requires_grad


def test_the_prediction_is_the_mean_of_the_nearest_neighbors():
    bank = empty_bank(8)
    features, probabilities = random_tensor(6, 3), random_tensor(6, 2, seed=1).softmax(1)
    bank.store(features=features, probabilities=probabilities)
    queries = random_tensor(4, 3, seed=2)
    predictions = bank.knn_predict(queries, neighbours=3)
    for feature, prediction in zip(queries, predictions, strict=True):
        cosines = [float(feature @ other / feature.norm() / other.norm()) for other in features]
        nearest = sorted(range(6), key=lambda index: -cosines[index])[:3]
        torch.testing.assert_close(prediction, sum(probabilities[index] for index in nearest) / 3)


def test_empty_rows_are_not_neighbors():
    bank = empty_bank(8)
    probabilities = random_tensor(2, 2).softmax(1)
    bank.store(features=-torch.ones(2, 3, dtype=torch.float64), probabilities=probabilities)
    predictions = bank.knn_predict(torch.ones(1, 3, dtype=torch.float64), neighbours=5)  # empty rows have cosine 0
    torch.testing.assert_close(predictions[0], probabilities.mean(0))


def test_the_prediction_of_an_empty_bank_is_0():
    assert torch.equal(
        empty_bank(4).knn_predict(random_tensor(2, 3), neighbours=10), torch.zeros(2, 2, dtype=torch.float64)
    )


def test_more_neighbors_than_rows_are_all_rows():
    bank = empty_bank(3)
    probabilities = random_tensor(3, 2).softmax(1)
    bank.store(features=random_tensor(3, 3), probabilities=probabilities)
    torch.testing.assert_close(bank.knn_predict(random_tensor(1, 3, seed=5), neighbours=10)[0], probabilities.mean(0))


def test_everything_is_a_buffer_of_constant_size():
    bank = empty_bank(5)
    before = {name: value.shape for name, value in bank.state_dict().items()}
    for count in (2, 7, 5, 1):
        bank.store(features=random_tensor(count, 3), probabilities=random_tensor(count, 2))
    assert {name: value.shape for name, value in bank.state_dict().items()} == before
    assert set(before) == {"features", "probabilities", "stored"}


def test_gradients_flow_into_similarities():
    bank = empty_bank(4)
    bank.store(features=random_tensor(2, 3), probabilities=random_tensor(2, 2))
    queries = random_tensor(2, 3, seed=4).requires_grad_()
    bank.similarities(queries).sum().backward()
    assert queries.grad.abs().sum() > 0


def test_storing_without_one_of_the_values_is_an_error():
    with pytest.raises(KeyError, match="probabilities"):
        empty_bank(4).store(features=random_tensor(2, 3))
