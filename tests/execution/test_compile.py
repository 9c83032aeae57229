"""Compiled networks: the same logits from any thread, and a fallback without a compiler."""

import copy
import importlib.util
import sys
import threading
from functools import partial

import pytest
import torch
from torch import fx

import driftlaw
from driftlaw.components.layer_rates import first_adam_step_of_summands
from driftlaw.errors import UsageError
from driftlaw.execution import compile as compilation
from driftlaw.execution.compile import fusing, has_cpp_compiler, relu_mask_from_input
from driftlaw.profiling import count_flops
from tests.execution.networks import batches, needs_compiler, needs_gpu, network, views_features

aten = torch.ops.aten
needs_custom_passes = pytest.mark.skipif(
    importlib.util.find_spec("torch._inductor.custom_graph_pass") is None, reason="this torch has no custom passes"
)
needs_shared_code = pytest.mark.skipif(
    not compilation.WEIGHTS_AS_INPUTS, reason="this torch compiles every network separately"
)


@pytest.mark.skipif(not hasattr(torch.compiler, "is_exporting"), reason="this torch does not say that it exports")
def test_torch_export_names_the_function_to_use():
    images = batches(1)[0]
    with pytest.raises(UsageError, match=r"cannot be exported\. Use driftlaw\.export\.export_adapter"):
        torch.export.export(driftlaw.adapt(network(), "tent"), (images,))


def relu_mask(*views: object) -> tuple[fx.Graph, fx.Node, fx.Node]:
    """Return a graph that computes the mask of a ReLU from its output after ``views``, its input, and the mask."""
    graph = fx.Graph()
    images = graph.placeholder("images")
    output = graph.call_function(aten.relu.default, (images,))
    for view in views:
        output = graph.call_function(view, (output,))
    mask = graph.call_function(aten.le.Scalar, (output, 0))
    graph.output((output, mask))
    return graph, images, mask


@pytest.mark.parametrize("views", [(), (aten.alias.default,), (aten.detach.default, aten.alias.default)])
def test_the_mask_of_a_relu_is_computed_from_its_input(views):
    graph, images, mask = relu_mask(*views)
    module = fx.GraphModule(torch.nn.Module(), graph)
    values = torch.tensor([-1.0, -0.0, 0.0, 1e-40, 2.0, float("nan"), float("inf"), -float("inf")])
    before = module(values)[1]
    relu_mask_from_input(graph)
    module.recompile()
    assert mask.args == (images, 0)
    assert torch.equal(module(values)[1], before)


def test_comparisons_of_other_values_are_not_changed():
    graph, _, mask = relu_mask(aten.neg.default)
    arguments = mask.args
    relu_mask_from_input(graph)
    assert mask.args == arguments


@needs_compiler
def test_compiled_steps_give_the_logits_of_eager_ones_from_any_thread_and_in_copies(two_threads):
    # In float64: a float32 step of LAW may change the sign of an update where the gradient is rounding noise.
    eager, compiled = (driftlaw.adapt(network(torch.float64), "law", compiled=how) for how in (False, True))
    stream = [*batches(2, dtype=torch.float64), *batches(1, size=4, dtype=torch.float64)]
    results: list[torch.Tensor] = []
    caller = threading.Thread(target=lambda: results.extend(compiled(images) for images in stream))
    caller.start()
    caller.join()
    assert len(results) == 3
    for images, result in zip(stream, results, strict=True):
        torch.testing.assert_close(result, eager(images), rtol=0, atol=1e-7)
    compiled.reset()
    duplicate = copy.deepcopy(compiled)
    assert duplicate.execution_info()["compiled"]
    for adapter in (compiled, duplicate):
        torch.testing.assert_close(adapter(stream[0]), results[0], rtol=0, atol=1e-12)


@needs_compiler
def test_a_fused_update_equals_the_plain_one():
    torch.manual_seed(0)
    summands = [[torch.randn(4, 3, 3, 3), torch.tensor([0.0, 1e-9, -1e-9, 1e-3])] for _ in range(2)]
    updated = []
    for enabled in (False, True):
        parameters = [torch.nn.Parameter(torch.ones_like(value)) for value in summands[0]]
        with fusing(enabled):
            first_adam_step_of_summands(parameters, summands, torch.tensor([0.1, 0.02]))
        updated.append(parameters)
    torch.testing.assert_close(updated[0], updated[1], rtol=1e-6, atol=1e-7)


@needs_gpu
def test_on_a_gpu_compiled_steps_update_weights_as_eager_ones():
    eager, compiled = (
        driftlaw.adapt(network().cuda(), "law", compiled=how, precision="float32") for how in (False, True)
    )
    for images in batches(4, device=torch.device("cuda")):
        torch.testing.assert_close(compiled(images), eager(images), rtol=1e-3, atol=1e-3)
    ours, theirs, before = (
        torch.cat([value.detach().flatten() for value in model.parameters()])
        for model in (compiled.model, eager.model, network().cuda())
    )
    moved, apart = (theirs - before).abs().mean(), (ours - theirs).abs().mean()
    assert moved > 0
    assert apart < 0.05 * moved


def graphs() -> int:
    """Return how many parts of networks torch has compiled."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@needs_compiler
def test_a_flop_counter_does_not_end_compilation():
    torch._dynamo.reset()
    adapter, (images,) = driftlaw.adapt(network(), "law", compiled=True), batches(1)
    _, operations = count_flops(partial(adapter, images))
    before = graphs()
    assert operations > 0
    adapter(images)
    assert graphs() > before


@needs_compiler
@needs_shared_code
def test_adapters_share_compiled_code():
    torch._dynamo.reset()
    stream = driftlaw.make_stream("embedded", limit=9, corruptions=["fog"], batch_size=9)
    (batch,) = stream
    before = graphs()
    record = driftlaw.run(stream, driftlaw.adapt(network(), "law", compiled=True))
    once = graphs()
    assert record.header["execution"]["compiled"]
    assert once > before
    driftlaw.adapt(network(), "law", compiled=True)(batch.images)
    assert graphs() == once


class Scaled(torch.nn.Module):
    """A network with an optional argument."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, images: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.inner(images) * scale


@needs_compiler
def test_a_compiled_network_accepts_all_its_arguments():
    adapter, (images,) = driftlaw.adapt(Scaled(), "source", compiled=True), batches(1)
    once, by_name, by_position = adapter.model(images), adapter.model(images, scale=2.0), adapter.model(images, 2.0)
    torch.testing.assert_close(by_name, 2 * once)
    torch.testing.assert_close(by_position, 2 * once)


@needs_compiler
def test_shapes_are_counted_per_class_of_networks(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(compilation, "MAX_SHAPES", 1)
    (images,) = batches(1)
    for model in (network(), Scaled()):
        before = graphs()
        driftlaw.adapt(model, "source", compiled=True)(images)
        assert graphs() > before


@needs_compiler
def test_a_compiled_network_that_views_its_features_stays_compiled():
    adapter, eager = (driftlaw.adapt(views_features(), "norm", compiled=how) for how in (True, False))
    for images in batches(2):
        torch.testing.assert_close(adapter(images), eager(images), rtol=1e-4, atol=1e-5)
    assert adapter.execution_info()["compiled"]
    assert not adapter.execution_info()["channels_last"]


@needs_compiler
def test_wrong_images_do_not_end_compilation():
    torch._dynamo.reset()
    adapter = driftlaw.adapt(network(), "law", compiled=True)
    with pytest.raises(UsageError, match="channels: found 2"):
        adapter(torch.rand(6, 2, 8, 8))
    assert adapter.execution_info()["compiled"]
    before = graphs()
    adapter(*batches(1))
    assert graphs() > before


def fail(graph: fx.Graph) -> None:
    raise ValueError("custom pass failed")


@needs_compiler
@needs_custom_passes
@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_that_cannot_be_compiled_runs_eagerly_with_a_warning(monkeypatch, two_threads, threads):
    torch.set_num_threads(threads)
    monkeypatch.setattr(compilation, "relu_mask_from_input", fail)
    adapter, eager = (driftlaw.adapt(network(), "law", seed=3, compiled=how) for how in (True, False))
    images = batches(3, size=5)
    with pytest.warns(UserWarning, match=r"cannot be compiled .*custom pass failed.* Steps run eagerly") as caught:
        result = adapter(images[0])
    assert caught[0].filename == __file__
    assert not adapter.execution_info()["compiled"]
    assert torch.equal(result, eager(images[0]))
    for batch in images[1:]:
        assert torch.equal(adapter(batch), eager(batch))


@pytest.mark.parametrize("method", ["law", "norm"])
def test_without_a_compiler_steps_run_eagerly_with_a_warning(monkeypatch, method):
    monkeypatch.setattr(compilation, "has_cpp_compiler", lambda: False)
    with pytest.warns(UserWarning, match=r"needs a C\+\+ compiler .* Steps run eagerly") as caught:
        adapter = driftlaw.adapt(network(), method, compiled=True)
    assert caught[0].filename == __file__
    assert not adapter.execution_info()["compiled"]
    (images,) = batches(1)
    assert torch.equal(adapter(images), driftlaw.adapt(network(), method)(images))


def test_a_torch_without_the_query_is_assumed_to_have_a_compiler(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._inductor.cpp_builder", None)
    assert has_cpp_compiler()
