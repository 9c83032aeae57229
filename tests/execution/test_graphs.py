"""CUDA graphs: capture, replay, fallback. What a GPU does is tested where there is one."""

import copy

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import driftlaw
from driftlaw.base import Adapter, ExecutionSettings, Plan, StepOutput
from driftlaw.errors import UsageError
from driftlaw.execution.graphs import GraphCache
from tests.execution.networks import batches, needs_gpu, network

CUDA = torch.device("cuda")


def test_on_a_cpu_a_function_is_called_directly():
    cache = GraphCache("auto")
    output = cache.run("sum", lambda images: StepOutput(images.sum((1, 2, 3))[:, None]), torch.ones(2, 3, 4, 4))
    assert output.logits.tolist() == [[48.0], [48.0]]
    assert not cache.graphs


@needs_gpu
def test_steps_with_captured_passes_are_counted_in_eager_mode():
    adapter = driftlaw.adapt(network().cuda(), "cotta", augmentations=8, confidence_threshold=1.0)
    images = batches(1, device=CUDA)[0]
    counts = []
    for _ in range(3):
        with adapter.eager(), FlopCounterMode(display=False) as counter:
            adapter(images)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] == counts[2] > 0


@needs_gpu
@pytest.mark.parametrize(
    "method",
    ["source", "norm", "tent", "surgical", "autorgn", "law", "cotta", "eta", "rdumb", "cmf", "palm", "sar", "lame"],
)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_captured_step_gives_the_bits_of_the_eager_one(method, precision):
    all_kept = {"entropy_threshold": 2.0, "similarity_threshold": 2.0}
    settings = {
        "cotta": {"augmentations": 2},
        "eta": all_kept,
        "rdumb": {"reset_every": 3, **all_kept},
        "cmf": {"consistency": False},
        "sar": {"entropy_threshold": 2.0},
    }.get(method, {})
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        eager, captured = (
            driftlaw.adapt(network().to(CUDA), method, precision=precision, capture=how, **settings)
            for how in ("off", "on")
        )
        for images in [*batches(8, device=CUDA), *batches(2, size=3, device=CUDA)]:
            assert torch.equal(eager(images), captured(images))
    assert captured._executor.graphs.graphs
    assert not eager._executor.graphs.graphs


@needs_gpu
@pytest.mark.parametrize("overlap", [True, False])
def test_captured_steps_of_a_sparse_law_give_the_bits_of_the_eager_ones(overlap):
    sparse = {"fisher_every": 4, "fisher_settling": 2, "skip_share": 0.5, "augment_every": 2}
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        eager, captured = (
            driftlaw.adapt(network().to(CUDA), "law", capture=how, overlap=overlap, **sparse) for how in ("off", "on")
        )
        for images in batches(24, device=CUDA):
            assert torch.equal(eager(images), captured(images))
    assert len(captured._executor.graphs.graphs) >= 3
    states = (adapter.state_dict() for adapter in (eager, captured))
    assert all(
        torch.equal(a, b) for a, b in zip(*(list(s.values()) for s in states), strict=True) if torch.is_tensor(a)
    )


@needs_gpu
def test_captured_steps_follow_reset_and_load():
    for method in ("tent", "law"):
        adapter = driftlaw.adapt(network().to(CUDA), method, capture="on")
        first = [adapter(images) for images in batches(5, device=CUDA)]
        adapter.reset()
        again = [adapter(images) for images in batches(5, device=CUDA)]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        state = copy.deepcopy(adapter.state_dict())
        images = batches(1, device=CUDA)[0]
        expected = [adapter(images) for _ in range(3)]
        adapter.load_state_dict(state)
        assert all(torch.equal(adapter(images), answer) for answer in expected)


@needs_gpu
def test_a_step_that_reads_a_value_back_runs_eagerly_with_a_warning():
    class ReadsBack(Adapter):
        name = title = "reads back"

        def update(self, images: torch.Tensor, plan: Plan) -> StepOutput:
            with torch.no_grad():
                logits = self.model(images)
            return StepOutput(logits * (1.0 if float(logits.sum()) else 2.0))

    images = batches(1, device=CUDA)[0]
    adapter = ReadsBack(network().to(CUDA), ExecutionSettings())
    first = adapter(images)
    adapter(images)
    with pytest.warns(UserWarning, match=r"CUDA graph capture failed .* Set capture='off'"):
        assert torch.equal(adapter(images), first)
    assert torch.equal(adapter(images), first)


@needs_gpu
def test_images_out_of_range_are_refused_at_once_if_the_gpu_is_idle():
    adapter = driftlaw.adapt(network().cuda(), "law")
    adapter(batches(1, device=CUDA)[0])
    wrong = 255 * batches(1, device=CUDA)[0]
    torch.cuda.synchronize()
    with pytest.raises(UsageError, match="divide by 255"):
        adapter(wrong)


@needs_gpu
@pytest.mark.parametrize("settings", [{}, {"mean": 0.0, "std": 1.0}], ids=["unit", "normalized"])
@pytest.mark.parametrize("method", ["law", "tent", "norm"])
@pytest.mark.filterwarnings("ignore:The first batch has values")
def test_a_step_does_not_wait_for_the_gpu(method, settings):
    adapter = driftlaw.adapt(network().to(CUDA), method, **settings)
    stream = batches(8, device=CUDA)
    for images in stream[:4]:
        adapter(images)
    torch.cuda._sleep(200_000_000)  # keeps the GPU busy
    torch.cuda.set_sync_debug_mode("error")
    try:
        for images in stream[4:5]:
            adapter(images)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
def test_a_late_range_check_reports_the_previous_batch():
    adapter = driftlaw.adapt(network().to(CUDA), "norm")
    good, bad = batches(2, device=CUDA)
    for _ in range(4):
        adapter(good)
    torch.cuda._sleep(200_000_000)  # keeps the GPU busy, so that the check does not wait
    adapter(bad * 255)
    with pytest.raises(UsageError, match=r"previous batch: .* reset\(\)"):
        adapter(good)
    adapter(good)


@needs_gpu
@pytest.mark.parametrize("method", ["law", "tent", "cotta"])
def test_captured_steps_normalise_the_images(method):
    mean, std = torch.tensor([0.4, 0.5, 0.6]), torch.tensor([0.2, 0.25, 0.3])
    shape = (3, 1, 1)
    pair = [
        driftlaw.adapt(network().to(CUDA), method, mean=mean, std=std, precision="float32", capture=capture)
        for capture in ("on", "off")
    ]
    for images in batches(6, device=CUDA):
        images = (images - mean.to(CUDA).view(shape)) / std.to(CUDA).view(shape)
        one, two = (adapter(images) for adapter in pair)
        torch.testing.assert_close(one, two, rtol=0, atol=1e-3)
