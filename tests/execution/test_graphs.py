"""How a step is run: precision, memory layout, replay; what a GPU does is tested where there is one."""

import copy
import pickle

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw import hardware as processor
from driftlaw.base import Adapter, ExecutionSettings, StepOutput
from driftlaw.base.inputs import ValueCheck
from driftlaw.errors import UsageError
from driftlaw.execution.graphs import Replays, lies_channels_last, passes_in, runs_in_bf16
from driftlaw.methods import registered_methods

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Flattening(nn.Module):
    """Looks at its feature maps as if they were contiguous, as many networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 36, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.norm(self.conv(images))
        return self.head(features.view(len(images), -1))


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).to(dtype)


def batches(count: int, size: int = 6, device: torch.device = CPU) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(size, 3, 8, 8, generator=generator).to(device) for _ in range(count)]


# --- precision ---------------------------------------------------------------------------------------------------


def test_a_cpu_computes_in_float32_unless_bf16_is_asked_for_and_survives(monkeypatch):
    monkeypatch.setattr(processor, "runs_bf16", lambda: True)
    assert not runs_in_bf16("auto", CPU, torch.float32)
    assert runs_in_bf16("bf16", CPU, torch.float32)
    assert not runs_in_bf16("bf16", CPU, torch.float64)
    monkeypatch.setattr(processor, "runs_bf16", lambda: False)
    assert not runs_in_bf16("bf16", CPU, torch.float32)


def test_an_autocast_of_the_callers_is_left_alone(monkeypatch):
    monkeypatch.setattr(processor, "runs_bf16", lambda: True)
    with torch.autocast("cpu", dtype=torch.float16):
        assert not runs_in_bf16("bf16", CPU, torch.float32)


def test_in_bf16_the_passes_are_and_the_caches_are_off():
    with passes_in(True, CPU):
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
        assert not torch.is_autocast_cache_enabled()
    assert torch.is_autocast_cache_enabled()
    with passes_in(False, CPU):
        assert not torch.is_autocast_enabled("cpu")
        assert not torch.is_autocast_cache_enabled()


def test_a_record_says_how_steps_were_run():
    told = driftlaw.adapt(network(), "law").execution()
    assert told == {"precision": "float32", "channels_last": True, "capture": False, "compiled": False}
    assert driftlaw.adapt(network(torch.float64), "law").execution()["precision"] == "float64"


def test_settings_of_execution_are_told_only_where_they_were_changed():
    assert ExecutionSettings().model_dump() == {}
    assert ExecutionSettings(precision="float32").model_dump() == {"precision": "float32"}


def test_every_method_takes_the_settings_of_execution():
    assert all(
        set(ExecutionSettings.model_fields) <= set(kind.Config.model_fields) for kind in registered_methods().values()
    )


# --- memory layout -----------------------------------------------------------------------------------------------


def test_float32_networks_lie_channels_last_and_float64_ones_as_they_came():
    assert lies_channels_last("auto", network())
    assert not lies_channels_last("auto", network(torch.float64))
    assert lies_channels_last("on", network(torch.float64))
    assert not lies_channels_last("off", network())
    assert not lies_channels_last("on", nn.Linear(2, 2))
    weight = driftlaw.adapt(network(), "norm").model[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("method", ["source", "tent", "law"])
def test_a_network_that_needs_contiguous_maps_gets_them_and_answers_as_ever(method):
    torch.manual_seed(0)
    model = Flattening()
    free, bound = driftlaw.adapt(model, method), driftlaw.adapt(model, method, channels_last="off")
    for images in batches(3):
        assert torch.equal(free(images), bound(images))
    assert not free.execution_info()["channels_last"]
    assert free.model.conv.weight.is_contiguous()


def test_a_layout_that_was_asked_for_is_not_given_up_in_silence():
    with pytest.raises(RuntimeError, match="view size"):
        driftlaw.adapt(Flattening(), "source", channels_last="on")(batches(1)[0])


def test_both_layouts_give_the_same_answers_but_for_rounding():
    apart, together = (driftlaw.adapt(network(), "law", channels_last=how) for how in ("off", "on"))
    for images in batches(3):
        torch.testing.assert_close(apart(images), together(images), rtol=1e-4, atol=1e-4)


# --- replay ------------------------------------------------------------------------------------------------------


def test_on_a_cpu_a_step_is_run_as_written():
    replays = Replays("auto")
    output = replays.run(lambda images: StepOutput(images.sum((1, 2, 3))[:, None]), torch.ones(2, 3, 4, 4))
    assert output.logits.tolist() == [[48.0], [48.0]]
    assert not replays.graphs


def test_inside_as_written_nothing_is_replayed():
    adapter = driftlaw.adapt(network(), "law", capture="on")
    with adapter.eager():
        assert adapter._replays.wanted == "off"
    assert adapter._replays.wanted == "on"


@needs_gpu
def test_replayed_passes_are_counted_all_the_same():
    from torch.utils.flop_counter import FlopCounterMode

    adapter = driftlaw.adapt(network().cuda(), "cotta", augmentations=8, confidence_threshold=1.0)
    images = batches(1, device=torch.device("cuda"))[0]
    counted = []
    for _ in range(3):
        with adapter.eager(), FlopCounterMode(display=False) as counter:
            adapter(images)
        counted.append(counter.get_total_flops())
    assert counted[0] == counted[1] == counted[2] > 0


def test_graphs_are_neither_copied_nor_pickled():
    replays = Replays("on")
    replays.graphs["step"] = object()
    assert copy.deepcopy(replays).graphs == {}
    assert pickle.loads(pickle.dumps(replays)).wanted == "on"


# --- values ------------------------------------------------------------------------------------------------------


def test_values_of_a_batch_that_nobody_waited_for_are_told_at_the_next_one():
    check = ValueCheck()

    class Arrived:
        def synchronize(self) -> None: ...

    check.awaited = (Arrived(), torch.tensor([0.0, float("nan")]))
    (told,) = check.problems(torch.rand(1, 3, 4, 4))
    assert told.startswith("the batch before: some pixels are NaN")
    assert "reset()" in told
    assert check.problems(torch.rand(1, 3, 4, 4)) == []


# --- on a GPU ----------------------------------------------------------------------------------------------------


@needs_gpu
@pytest.mark.parametrize("method", ["source", "norm", "tent", "surgical", "autorgn", "law", "cotta"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_captured_step_gives_the_bits_of_the_written_one(method, precision):
    device = torch.device("cuda")
    settings = {"augmentations": 2} if method == "cotta" else {}
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        written, captured = (
            driftlaw.adapt(network().to(device), method, precision=precision, capture=how, **settings)
            for how in ("off", "on")
        )
        for images in [*batches(8, device=device), *batches(2, size=3, device=device)]:
            assert torch.equal(written(images), captured(images))
    assert captured._replays.graphs
    assert not written._replays.graphs


@needs_gpu
@pytest.mark.parametrize("overlap", [True, False])
def test_captured_steps_of_a_cheaper_law_give_the_bits_of_the_written_ones(overlap):
    device = torch.device("cuda")
    cheaper = {"fisher_every": 4, "fisher_settling": 2, "skip_share": 0.5, "augment_every": 2}
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        written, captured = (
            driftlaw.adapt(network().to(device), "law", capture=how, overlap=overlap, **cheaper)
            for how in ("off", "on")
        )
        for images in batches(24, device=device):
            assert torch.equal(written(images), captured(images))
    assert len(captured._replays.graphs) >= 3
    states = (adapter.state_dict() for adapter in (written, captured))
    assert all(
        torch.equal(a, b) for a, b in zip(*(list(s.values()) for s in states), strict=True) if torch.is_tensor(a)
    )


@needs_gpu
def test_a_reset_and_a_load_are_seen_by_captured_steps():
    device = torch.device("cuda")
    for method in ("tent", "law"):
        adapter = driftlaw.adapt(network().to(device), method, capture="on")
        first = [adapter(images) for images in batches(5, device=device)]
        adapter.reset()
        again = [adapter(images) for images in batches(5, device=device)]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        state = copy.deepcopy(adapter.state_dict())
        images = batches(1, device=device)[0]
        expected = [adapter(images) for _ in range(3)]
        adapter.load_state_dict(state)
        assert all(torch.equal(adapter(images), answer) for answer in expected)


@needs_gpu
def test_a_step_that_asks_the_host_goes_on_uncaptured_with_a_warning():
    class Asking(Adapter):
        name = title = "asking"

        def adapt(self, images: torch.Tensor) -> StepOutput:
            return self.replayed(self._ask, images)

        def _ask(self, images: torch.Tensor) -> StepOutput:
            with torch.no_grad():
                logits = self.model(images)
            return StepOutput(logits * (1.0 if float(logits.sum()) else 2.0))

    device = torch.device("cuda")
    images = batches(1, device=device)[0]
    adapter = Asking(network().to(device), ExecutionSettings())
    first = adapter(images)
    adapter(images)
    with pytest.warns(UserWarning, match="cannot be a CUDA graph"):
        assert torch.equal(adapter(images), first)
    assert torch.equal(adapter(images), first)


@needs_gpu
def test_images_out_of_range_are_refused_at_once_while_the_gpu_is_idle():
    adapter = driftlaw.adapt(network().cuda(), "law")
    adapter(batches(1, device=torch.device("cuda"))[0])
    torch.cuda.synchronize()
    with pytest.raises(UsageError, match="divide by 255"):
        adapter(255 * batches(1, device=torch.device("cuda"))[0])


@needs_gpu
@pytest.mark.parametrize("method", ["law", "tent", "norm"])
def test_no_step_waits_for_the_gpu(method):
    device = torch.device("cuda")
    adapter = driftlaw.adapt(network().to(device), method)
    stream = batches(8, device=device)
    for images in stream[:4]:
        adapter(images)
    torch.cuda._sleep(200_000_000)  # so that the GPU is busy all the while
    torch.cuda.set_sync_debug_mode("error")
    try:
        for images in stream[4:5]:
            adapter(images)
    finally:
        torch.cuda.set_sync_debug_mode("default")
