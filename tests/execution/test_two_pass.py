"""Engines of two passes against ``sequential``, their definition."""

from functools import partial

import pytest
import torch

from driftlaw.components.layer_rates import sum_gradients
from driftlaw.components.losses import entropy, soft_cross_entropy
from driftlaw.execution.cuda import CudaEngine
from driftlaw.execution.threads import ThreadEngine
from driftlaw.execution.two_pass import Passes, recompute, sequential, two_pass
from tests.execution.networks import batches, network


def loss(logits, augmented_logits):
    if augmented_logits is None:
        return entropy(logits)
    return entropy(logits) + 0.3 * soft_cross_entropy(logits, augmented_logits)


def gradient_norms(logits, parameters):
    gradients = torch.autograd.grad(logits.logsumexp(1).sum(), parameters, retain_graph=True, materialize_grads=True)
    return torch.stack([value.norm() for value in gradients])


flip = partial(torch.flip, dims=(3,))


def cuda_engine(model, *, recompute=False):
    return CudaEngine([name for name, _ in model.named_parameters()], overlap=True, recompute=recompute)


def traced_cuda_engine(model, *, recompute=False):
    """Return a CUDA engine that has seen a batch, so that the next one has weights per pass."""
    engine = cuda_engine(model, recompute=recompute)
    (images,) = batches(1, dtype=torch.float64)
    two_pass(model, list(model.parameters()), images, flip, loss, None, engine)
    assert engine.traced
    return engine


ENGINES = {
    "recompute": lambda model: recompute,
    "two threads": lambda model: ThreadEngine(2),
    "three threads": lambda model: ThreadEngine(3),
    "two threads, first alone": lambda model: ThreadEngine(2, first_alone=True),
    "cuda, first batch": cuda_engine,
    "cuda, weights per pass": traced_cuda_engine,
    "cuda, recompute": partial(traced_cuda_engine, recompute=True),
}


@pytest.mark.parametrize("probe", [None, gradient_norms], ids=["no probe", "probe"])
@pytest.mark.parametrize("augment", [None, flip], ids=["one pass", "two passes"])
@pytest.mark.parametrize("skipped", [0, 2])
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_computes_what_sequential_does(two_threads, name, augment, probe, skipped):
    model = network(torch.float64)
    parameters = list(model.parameters())[skipped:]
    engine = ENGINES[name](model)
    (images,) = batches(1, dtype=torch.float64)
    expected = two_pass(model, parameters, images, augment, loss, probe)
    result = two_pass(model, parameters, images, augment, loss, probe, engine)
    torch.testing.assert_close(result.logits, expected.logits, rtol=0, atol=1e-13)
    assert not result.logits.requires_grad
    totals = (sum_gradients(parameters, each.summands) for each in (result, expected))
    for total, reference in zip(*totals, strict=True):
        torch.testing.assert_close(total, reference, rtol=1e-11, atol=1e-14)
    if probe is None:
        assert result.probe is None
    else:
        torch.testing.assert_close(result.probe, expected.probe, rtol=1e-11, atol=0)


@pytest.mark.parametrize("name", ENGINES)
def test_parameters_that_are_not_listed_get_no_gradient_and_flags_are_restored(two_threads, name):
    model = network(torch.float64)
    seen = []

    def probe(logits, parameters):
        seen.append([value.requires_grad for value in model.parameters()])

    (images,) = batches(1, dtype=torch.float64)
    two_pass(model, list(model.parameters())[2:], images, flip, loss, probe, ENGINES[name](model))
    assert seen == [[False, False, *[True] * 8]]
    assert all(value.requires_grad and value.grad is None for value in model.parameters())


def test_flags_are_restored_after_an_error(two_threads):
    model = network(torch.float64)
    with pytest.raises(RuntimeError, match="channels"):
        two_pass(model, list(model.parameters())[2:], torch.rand(2, 5, 8, 8).double(), flip, loss)
    assert all(value.requires_grad for value in model.parameters())


def test_sequential_returns_one_list_of_summands():
    model = network(torch.float64)
    (images,) = batches(1, dtype=torch.float64)
    result = sequential(Passes(model, list(model.parameters()), images, flip, loss, None))
    expected = torch.autograd.grad(loss(model(images), model(flip(images))), list(model.parameters()))
    assert len(result.summands) == 1
    assert all(torch.equal(a, b) for a, b in zip(result.summands[0], expected, strict=True))
