"""Training loss and Jensen–Shannon divergence."""

import pytest
import torch
import torch.nn.functional as F

from benchmarks.train.loss import jensen_shannon, training_loss
from tests.reference import augmix as reference


def logits(count=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(5, 4, generator=rng) * 2 for _ in range(count))


def test_the_divergence_equals_the_reference():
    views = logits()
    assert float(jensen_shannon(views)) == pytest.approx(reference.jensen_shannon(views), rel=1e-5)


def test_the_divergence_is_between_zero_and_the_logarithm_of_the_number_of_views():
    one = logits(1)[0]
    assert float(jensen_shannon((one, one, one))) == pytest.approx(0, abs=1e-6)
    confident = torch.eye(3)[:, None] * 100
    assert float(jensen_shannon(tuple(confident))) == pytest.approx(torch.log(torch.tensor(3.0)).item(), rel=1e-4)


def test_confident_predictions_have_finite_gradients():
    views = (torch.eye(3)[:, None] * 1000).requires_grad_()
    jensen_shannon(tuple(views)).backward()
    assert views.grad.isfinite().all()


class Mean(torch.nn.Module):
    """Returns the mean of each channel as logits."""

    def forward(self, images):
        return images.mean((2, 3)) * 10


def test_uint8_and_float_images_have_the_same_loss():
    images = torch.randint(0, 256, (4, 3, 5, 5), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    labels = torch.tensor([0, 1, 2, 0])
    loss = training_loss(Mean(), images, labels, 12.0)
    assert torch.equal(loss, training_loss(Mean(), images.float().div(255), labels, 12.0))
    torch.testing.assert_close(loss, F.cross_entropy(Mean()(images.float().div(255)), labels))


def test_the_loss_of_several_views_adds_their_divergence():
    images = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1])
    views = Mean()(images).split(2)
    expected = F.cross_entropy(views[0], labels) + 7 * jensen_shannon(views)
    torch.testing.assert_close(training_loss(Mean(), images, labels, 7.0), expected)
