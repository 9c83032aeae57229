"""LAME: Laplacian adjusted maximum-likelihood estimation of the predictions of a batch (Boudiaf et al., CVPR 2022)."""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor

from driftlaw.base import Adapter, ExecutionSettings, Plan, StepOutput
from driftlaw.components.features import logits_and_features
from driftlaw.execution.precision import autocast_disabled

TOLERANCE = 1e-8  # relative change of the energy at which the iteration ends


class Lame(Adapter, name="lame"):
    """LAME (Boudiaf et al., CVPR 2022): predictions of a batch are corrected so that similar images get similar ones.

    q are the probabilities of the n images of a batch, z their features (the input of the last linear layer), of length
    1. Y is the corrected matrix (n, classes) of probabilities.

        (1)  w_ij = exp(−‖z_i − z_j‖²/(2σ²))      σ: mean distance of an image to its fifth nearest, itself included
        (2)  Y ← softmax(log q + W·Y), from Y = q, at most 100 times, until
        (3)  the energy Σ Y·(log Y − log q − W·Y) changes by at most 1e-8 of its value

    The model is not changed, and nothing is kept between batches. BatchNorm layers use stored statistics. Logits are
    log Y.

    **Differences from the paper:** all iterations are computed, and those after (3) is met are not used, so that no
    value is read back to the host. If all images have the same features, or the batch has one image, σ is 0 and Y = q.
    """

    title = "LAME"
    paper = "Parameter-free online test-time adaptation, CVPR 2022"
    adapts = "nothing"
    classification_only = "LAME compares features of whole images"
    forward_cost, backward_cost = 1, 0

    class Config(ExecutionSettings):
        """Settings of LAME; one set for all datasets."""

        affinity: Literal["rbf", "knn", "linear"] = "rbf"
        """W: ``rbf`` is (1); ``knn`` is 1 for the nearest other images and 0 for the rest; ``linear`` is z_i·z_j."""
        neighbors: PositiveInt = 5
        """Number of nearest images in (1) and ``knn``."""
        iterations: PositiveInt = 100
        """Largest number of iterations of (2)."""

    @torch.no_grad()
    def forward_logits(self, images: Tensor) -> Tensor:
        """Return the logarithms of the corrected probabilities."""
        logits, features = logits_and_features(self.model, images)
        with autocast_disabled(features):
            affinities = affinity_matrix(F.normalize(features, dim=1), self.config.affinity, self.config.neighbors)
            log_probabilities = (logits.softmax(dim=1) + 1e-10).log()  # 1e-10: as in the paper's code
            return propagate(log_probabilities, affinities, self.config.iterations)

    def update(self, images: Tensor, plan: Plan) -> StepOutput:
        """Predict the batch and correct the predictions."""
        return StepOutput(self.forward_logits(images))


def affinity_matrix(features: Tensor, kind: str, neighbors: int) -> Tensor:
    """Return W (n, n) of features (n, d) of length 1; see the setting ``affinity``."""
    if kind == "linear":
        return features @ features.T
    distances = torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")  # exact near 0
    if kind == "knn":
        distances.fill_diagonal_(-1)  # the image itself comes first, and is left out
        nearest = distances.topk(min(neighbors + 1, len(features)), dim=1, largest=False).indices[:, 1:]
        return torch.zeros_like(distances).scatter_(1, nearest, 1.0)
    sigma = distances.topk(min(neighbors, len(features)), dim=1, largest=False).values[:, -1].mean()
    return torch.where(sigma > 0, (-0.5 * (distances / sigma).square()).exp(), 0.0)  # (1)


def propagate(log_probabilities: Tensor, affinities: Tensor, iterations: int) -> Tensor:
    """Return log Y (n, classes) after the iteration of (2), from log q (n, classes) and W (n, n).

    >>> q = torch.tensor([[0.9, 0.1], [0.4, 0.6]])
    >>> propagate(q.log(), torch.ones(2, 2), 100).argmax(dim=1)  # the second image follows the first
    tensor([0, 0])
    """
    result = log_probabilities.log_softmax(dim=1)
    energy, done = result.new_full((), torch.inf), torch.zeros((), dtype=torch.bool, device=result.device)
    for iteration in range(iterations):
        pairwise = affinities @ result.exp()
        log_y = (log_probabilities + pairwise).log_softmax(dim=1)  # (2)
        previous, energy = energy, (log_y.exp() * (log_y - log_probabilities - pairwise)).sum()
        result = torch.where(done, result, log_y)
        if iteration > 1:
            done = done | ((energy - previous).abs() <= TOLERANCE * previous.abs())  # (3)
    return result
