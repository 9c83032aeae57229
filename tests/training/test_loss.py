"""What a training step makes small."""

import pytest
import torch
import torch.nn.functional as F

from driftlaw.training.loss import jensen_shannon, loss_of
from tests.reference import augmix as reference


def logits(count=3, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(5, 4, generator=draws) * 2 for _ in range(count))


def test_the_divergence_is_that_of_the_loops():
    views = logits()
    assert float(jensen_shannon(views)) == pytest.approx(reference.jensen_shannon(views), rel=1e-5)


def test_answers_that_agree_cost_nothing_and_none_costs_more_than_the_logarithm_of_the_views():
    one = logits(1)[0]
    assert float(jensen_shannon((one, one, one))) == pytest.approx(0, abs=1e-6)
    sure = torch.eye(3)[:, None] * 100
    assert float(jensen_shannon(tuple(sure))) == pytest.approx(torch.log(torch.tensor(3.0)).item(), rel=1e-4)


def test_sure_answers_give_finite_gradients():
    views = (torch.eye(3)[:, None] * 1000).requires_grad_()
    jensen_shannon(tuple(views)).backward()
    assert views.grad.isfinite().all()


class Mean(torch.nn.Module):
    """Answers with the mean of each channel."""

    def forward(self, images):
        return images.mean((2, 3)) * 10


def test_bytes_and_floats_are_the_same_images():
    images = torch.randint(0, 256, (4, 3, 5, 5), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    labels = torch.tensor([0, 1, 2, 0])
    found = loss_of(Mean(), images, labels, 12.0)
    assert torch.equal(found, loss_of(Mean(), images.float().div(255), labels, 12.0))
    torch.testing.assert_close(found, F.cross_entropy(Mean()(images.float().div(255)), labels))


def test_several_views_pay_for_the_first_ones_errors_and_for_disagreement():
    images = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1])
    views = Mean()(images).split(2)
    expected = F.cross_entropy(views[0], labels) + 7 * jensen_shannon(views)
    torch.testing.assert_close(loss_of(Mean(), images, labels, 7.0), expected)
