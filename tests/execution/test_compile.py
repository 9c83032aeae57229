"""Steps with a compiled network on a CPU: the same answers, whoever calls, and no compiler is no error."""

import copy
import importlib.util
import sys
import threading
from functools import partial

import pytest
import torch
from torch import fx

import driftlaw
from driftlaw.components.layer_rates import first_adam_step
from driftlaw.errors import UsageError
from driftlaw.execution import compile as compilation
from driftlaw.execution.compile import fused, has_cpp_compiler, take_masks_from_inputs
from driftlaw.profiling import count_flops
from tests.execution.test_graphs import Flattening, batches, needs_gpu, network

aten = torch.ops.aten
needs_compiler = pytest.mark.skipif(not has_cpp_compiler(), reason="needs a C++ compiler")
needs_passes_of_ours = pytest.mark.skipif(
    importlib.util.find_spec("torch._inductor.custom_graph_pass") is None, reason="torch takes none of our passes"
)
needs_shared_code = pytest.mark.skipif(
    not compilation.WEIGHTS_AS_INPUTS, reason="torch compiled every network for itself"
)


def asked_of_relu(*ways: object) -> tuple[fx.Graph, fx.Node, fx.Node]:
    """Return a graph that asks where a ReLU's output, handed on by ``ways``, is 0; its input, and the question."""
    graph = fx.Graph()
    images = graph.placeholder("images")
    output = graph.call_function(aten.relu.default, (images,))
    for way in ways:
        output = graph.call_function(way, (output,))
    closed = graph.call_function(aten.le.Scalar, (output, 0))
    graph.output((output, closed))
    return graph, images, closed


@pytest.mark.parametrize("ways", [(), (aten.alias.default,), (aten.detach.default, aten.alias.default)])
def test_where_a_relu_is_closed_is_asked_of_its_input(ways):
    graph, images, closed = asked_of_relu(*ways)
    module = fx.GraphModule(torch.nn.Module(), graph)
    values = torch.tensor([-1.0, -0.0, 0.0, 1e-40, 2.0, float("nan"), float("inf"), -float("inf")])
    before = module(values)[1]
    take_masks_from_inputs(graph)
    module.recompile()
    assert closed.args == (images, 0)
    assert torch.equal(module(values)[1], before)


def test_questions_about_other_things_are_left_alone():
    graph, _, closed = asked_of_relu(aten.neg.default)
    asked = closed.args
    take_masks_from_inputs(graph)
    assert closed.args == asked


@needs_compiler
def test_compiled_steps_answer_as_written_ones_from_any_thread_and_in_copies(two_threads):
    written, compiled = (driftlaw.adapt(network(), "law", compiled=how) for how in (False, True))
    stream = [*batches(2), *batches(1, size=4)]
    answers: list[torch.Tensor] = []
    caller = threading.Thread(target=lambda: answers.extend(compiled(images) for images in stream))
    caller.start()
    caller.join()
    assert len(answers) == 3
    for images, answer in zip(stream, answers, strict=True):
        torch.testing.assert_close(answer, written(images), rtol=1e-4, atol=1e-4)
    compiled.reset()
    twin = copy.deepcopy(compiled)
    assert twin.execution_info()["compiled"]
    for adapter in (compiled, twin):
        torch.testing.assert_close(adapter(stream[0]), answers[0], rtol=1e-4, atol=1e-4)


@needs_compiler
def test_a_fused_update_moves_weights_as_the_written_one():
    torch.manual_seed(0)
    gradients = [torch.randn(4, 3, 3, 3), torch.tensor([0.0, 1e-9, -1e-9, 1e-3])]
    moved = []
    for step in (first_adam_step, fused(first_adam_step)):
        parameters = [torch.nn.Parameter(torch.ones_like(value)) for value in gradients]
        step(parameters, gradients, torch.tensor([0.1, 0.02]))
        moved.append(parameters)
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-6, atol=1e-7)


def test_on_a_cpu_an_update_is_not_fused():
    adapter = driftlaw.adapt(network(), "law", compiled=has_cpp_compiler())
    assert adapter.fused(first_adam_step) is first_adam_step


@needs_gpu
def test_on_a_gpu_compiled_steps_move_weights_as_written_ones():
    written, compiled = (
        driftlaw.adapt(network().cuda(), "law", compiled=how, precision="float32") for how in (False, True)
    )
    assert compiled.fused(first_adam_step) is not first_adam_step
    for images in batches(4, device=torch.device("cuda")):
        torch.testing.assert_close(compiled(images), written(images), rtol=1e-3, atol=1e-3)
    ours, theirs, before = (
        torch.cat([value.detach().flatten() for value in model.parameters()])
        for model in (compiled.model, written.model, network().cuda())
    )
    moved, apart = (theirs - before).abs().mean(), (ours - theirs).abs().mean()
    assert moved > 0
    assert apart < 0.05 * moved


def graphs() -> int:
    """Return how many pieces of networks torch has compiled."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


@needs_compiler
def test_a_counter_at_work_does_not_end_compiling_for_good():
    torch._dynamo.reset()
    adapter, (images,) = driftlaw.adapt(network(), "law", compiled=True), batches(1, size=7)
    _, operations = count_flops(partial(adapter, images))
    before = graphs()
    assert operations > 0
    adapter(images)
    assert graphs() > before


@needs_compiler
@needs_shared_code
def test_a_run_compiles_and_adapters_share_what_was_compiled():
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
    """A network with an argument that only its owner gives."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, images: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.inner(images) * scale


@needs_compiler
def test_a_compiled_network_takes_all_arguments_that_it_has():
    adapter, (images,) = driftlaw.adapt(Scaled(), "source", compiled=True), batches(1)
    once, named, placed = adapter.model(images), adapter.model(images, scale=2.0), adapter.model(images, 2.0)
    torch.testing.assert_close(named, 2 * once)
    torch.testing.assert_close(placed, 2 * once)


@needs_compiler
def test_shapes_are_counted_for_every_class_of_networks_by_itself(monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(compilation, "MOST_SHAPES", 1)
    (images,) = batches(1)
    for model in (network(), Scaled()):
        before = graphs()
        driftlaw.adapt(model, "source", compiled=True)(images)
        assert graphs() > before


@needs_compiler
def test_a_compiled_network_that_needs_contiguous_maps_gets_them_and_stays_compiled():
    torch.manual_seed(0)
    model = Flattening()
    adapter, written = (driftlaw.adapt(model, "law", compiled=how) for how in (True, False))
    for images in batches(2):
        torch.testing.assert_close(adapter(images), written(images), rtol=1e-4, atol=1e-4)
    assert adapter.execution_info()["compiled"]
    assert not adapter.execution_info()["channels_last"]


@needs_compiler
def test_wrong_images_are_told_of_and_do_not_end_compiling():
    adapter = driftlaw.adapt(network(), "law", compiled=True)
    with pytest.raises(UsageError, match="channels: found 2"):
        adapter(torch.rand(6, 2, 8, 8))
    assert adapter.execution_info()["compiled"]
    before = graphs()
    adapter(torch.rand(11, 3, 8, 8))
    assert graphs() > before


def fail(graph: fx.Graph) -> None:
    raise ValueError("no way")


@needs_compiler
@needs_passes_of_ours
@pytest.mark.parametrize("threads", [1, 2])
def test_a_network_that_cannot_be_compiled_is_told_of_and_runs_as_written(monkeypatch, two_threads, threads):
    torch.set_num_threads(threads)
    monkeypatch.setattr(compilation, "take_masks_from_inputs", fail)
    adapter, written = (driftlaw.adapt(network(), "law", seed=3, compiled=how) for how in (True, False))
    images = batches(3, size=5)
    with pytest.warns(UserWarning, match="cannot be .*no way.*; steps run as written") as told:
        answer = adapter(images[0])
    assert told[0].filename == __file__
    assert not adapter.execution_info()["compiled"]
    assert torch.equal(answer, written(images[0]))
    for batch in images[1:]:
        assert torch.equal(adapter(batch), written(batch))


@pytest.mark.parametrize("method", ["law", "norm"])
def test_without_a_compiler_steps_run_as_written_with_a_warning(monkeypatch, method):
    monkeypatch.setattr(compilation, "has_cpp_compiler", lambda: False)
    with pytest.warns(UserWarning, match="no C\\+\\+ compiler") as told:
        adapter = driftlaw.adapt(network(), method, compiled=True)
    assert told[0].filename == __file__
    assert not adapter.execution_info()["compiled"]
    (images,) = batches(1)
    assert torch.equal(adapter(images), driftlaw.adapt(network(), method)(images))


def test_a_torch_that_cannot_be_asked_for_its_compiler_is_left_to_find_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._inductor.cpp_builder", None)
    assert has_cpp_compiler()
