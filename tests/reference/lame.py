"""LAME with loops over images and classes; nothing of driftlaw is used."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def affinity_matrix(features: Tensor, kind: str, neighbors: int) -> list[list[float]]:
    """Return W from features (n, d)."""
    rows = [[float(value) for value in row / row.norm()] for row in features]
    count = len(rows)
    if kind == "linear":
        return [[sum(a * b for a, b in zip(one, other, strict=True)) for other in rows] for one in rows]
    distances = [[math.dist(one, other) for other in rows] for one in rows]
    if kind == "knn":
        matrix = [[0.0] * count for _ in range(count)]
        for i in range(count):
            others = sorted((j for j in range(count) if j != i), key=lambda j: distances[i][j])
            for j in others[:neighbors]:
                matrix[i][j] = 1.0
        return matrix
    sigma = sum(sorted(row)[min(neighbors, count) - 1] for row in distances) / count
    return [[math.exp(-distance * distance / (2 * sigma * sigma)) for distance in row] for row in distances]


def corrected(probabilities: Tensor, matrix: list[list[float]], iterations: int = 100) -> tuple[Tensor, int]:
    """Return the corrected probabilities (n, classes) and the number of iterations."""
    count, classes = probabilities.shape
    q = [[math.log(float(p) + 1e-10) for p in row] for row in probabilities]
    y = [[math.exp(value) / sum(math.exp(other) for other in row) for value in row] for row in q]
    previous = math.inf
    for iteration in range(iterations):
        pairwise = [[sum(matrix[i][j] * y[j][c] for j in range(count)) for c in range(classes)] for i in range(count)]
        y = []
        for i in range(count):
            exponents = [q[i][c] + pairwise[i][c] for c in range(classes)]
            largest = max(exponents)
            terms = [math.exp(value - largest) for value in exponents]
            y.append([term / sum(terms) for term in terms])
        energy = sum(
            y[i][c] * (math.log(max(y[i][c], 1e-300)) - q[i][c] - pairwise[i][c])
            for i in range(count)
            for c in range(classes)
        )
        if iteration > 1 and abs(energy - previous) <= 1e-8 * abs(previous):
            return torch.tensor(y, dtype=torch.float64), iteration + 1
        previous = energy
    return torch.tensor(y, dtype=torch.float64), iterations
