"""Fisher scores of one number a tensor."""

from __future__ import annotations

import torch

from driftlaw.components.batch_norm import fixed_batch_stats, use_batch_stats
from driftlaw.components.fisher import mean_squares, per_sample_fisher, score, tensor_sizes
from driftlaw.components.losses import pseudo_label_nll
from driftlaw.models import build_model


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_model("wrn_10_1", num_classes=3).double().eval()
    use_batch_stats(model)
    return model


def test_mean_squares_are_the_means_of_the_squares():
    tensors = [torch.randn(3, 4, dtype=torch.float64), torch.randn(7, dtype=torch.float64)]
    expected = torch.stack([tensor.square().mean() for tensor in tensors])
    torch.testing.assert_close(mean_squares(tensors, tensor_sizes(tensors)), expected)


def test_mean_squares_of_tensors_in_several_dtypes_keep_the_order_of_the_tensors():
    tensors = [torch.randn(8).bfloat16(), torch.randn(5), torch.randn(6).bfloat16(), torch.randn(4).double()]
    expected = torch.stack([tensor.double().square().mean() for tensor in tensors])
    for order in ([0, 1, 2, 3], [1, 0, 3, 2]):
        found = mean_squares([tensors[place] for place in order], tensor_sizes([tensors[place] for place in order]))
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected[order], rtol=1e-5, atol=0)


def test_per_sample_fisher_equals_a_loop_over_images_whatever_the_chunk():
    model, images = network(), torch.rand(5, 3, 8, 8, dtype=torch.float64)
    learning = {name: value for name, value in model.named_parameters() if "norm" in name}
    total = torch.zeros(len(learning), dtype=torch.float64)
    with fixed_batch_stats(model, images):
        for image in images:
            gradients = torch.autograd.grad(pseudo_label_nll(model(image[None])), list(learning.values()))
            total += mean_squares(gradients, tensor_sizes(gradients)) / len(images)
    for at_once in (1, 2, 16):
        torch.testing.assert_close(per_sample_fisher(model, learning, images, chunk_size=at_once), total)


def test_the_graph_survives_the_score():
    model, images = network(), torch.rand(4, 3, 8, 8, dtype=torch.float64)
    logits = model(images)
    score(logits, [model.conv.weight])
    logits.sum().backward()
    assert model.conv.weight.grad is not None


def test_a_parameter_that_the_logits_do_not_hang_on_has_the_score_0():
    model, unused = network(), torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    logits = model(torch.rand(4, 3, 8, 8, dtype=torch.float64))
    gradients = score(logits, [model.conv.weight, unused])
    assert gradients[0].abs().sum() > 0
    assert torch.equal(gradients[1], torch.zeros_like(unused))
