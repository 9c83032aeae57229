"""Fisher information, one number per tensor."""

from __future__ import annotations

import torch
from torch import nn

from driftlaw.components.batch_norm import fixed_batch_stats, use_batch_stats
from driftlaw.components.fisher import mean_squares, per_sample_fisher, score, tensor_sizes
from driftlaw.components.losses import pseudo_label_nll
from driftlaw.models import build_model


def tiny_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_model("wrn_10_1", num_classes=3).double().eval()
    use_batch_stats(model)
    return model


def test_mean_squares_are_the_means_of_the_squares():
    tensors = [torch.randn(3, 4, dtype=torch.float64), torch.randn(7, dtype=torch.float64)]
    expected = torch.stack([tensor.square().mean() for tensor in tensors])
    torch.testing.assert_close(mean_squares(tensors, tensor_sizes(tensors)), expected)


def test_mean_squares_of_several_dtypes_keep_the_order_of_the_tensors():
    tensors = [torch.randn(8).bfloat16(), torch.randn(5), torch.randn(6).bfloat16(), torch.randn(4).double()]
    expected = torch.stack([tensor.double().square().mean() for tensor in tensors])
    for order in ([0, 1, 2, 3], [1, 0, 3, 2]):
        reordered = [tensors[index] for index in order]
        result = mean_squares(reordered, tensor_sizes(reordered))
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), expected[order], rtol=1e-5, atol=0)


def test_per_sample_fisher_equals_a_loop_over_images_for_any_chunk_size():
    model, images = tiny_model(), torch.rand(5, 3, 8, 8, dtype=torch.float64)
    trainable = {name: value for name, value in model.named_parameters() if "norm" in name}
    expected = torch.zeros(len(trainable), dtype=torch.float64)
    with fixed_batch_stats(model, images):
        for image in images:
            gradients = torch.autograd.grad(pseudo_label_nll(model(image[None])), list(trainable.values()))
            expected += mean_squares(gradients, tensor_sizes(gradients)) / len(images)
    for chunk_size in (1, 2, 16):
        torch.testing.assert_close(per_sample_fisher(model, trainable, images, chunk_size=chunk_size), expected)


def test_the_graph_is_retained_after_the_score():
    model, images = tiny_model(), torch.rand(4, 3, 8, 8, dtype=torch.float64)
    expected = torch.autograd.grad(model(images)[:, 0].square().sum(), model.conv.weight)[0]
    logits = model(images)
    score(logits, [model.conv.weight])
    assert torch.equal(torch.autograd.grad(logits[:, 0].square().sum(), model.conv.weight)[0], expected)


def test_a_parameter_that_the_logits_do_not_depend_on_has_score_0():
    model, unused = tiny_model(), nn.Parameter(torch.ones(3, dtype=torch.float64))
    logits = model(torch.rand(4, 3, 8, 8, dtype=torch.float64))
    gradients = score(logits, [model.conv.weight, unused])
    assert gradients[0].abs().sum() > 0
    assert torch.equal(gradients[1], torch.zeros_like(unused))
