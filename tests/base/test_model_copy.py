"""Models of users: outputs, wrappers, hooks, and models that are refused."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import Adapter, StepOutput
from driftlaw.base.model_copy import num_classes
from driftlaw.errors import DriftlawWarning, UsageError
from driftlaw.testing.fixtures import make_images, tiny_model
from tests.base.models import small_model


class WrapsLogits(nn.Module):
    """A model that returns its logits inside something else."""

    def __init__(self, wrap):
        super().__init__()
        torch.manual_seed(0)
        self.inner = small_model()
        self.wrap = wrap

    def forward(self, images):
        return self.wrap(self.inner(images))


OUTPUTS = {
    "bare": lambda logits: logits,
    "tuple": lambda logits: (logits, logits.mean()),
    "list": lambda logits: [None, logits],
    "dict": lambda logits: {"loss": None, "logits": logits},
    "object": lambda logits: SimpleNamespace(logits=logits, hidden_states=None),
}


@pytest.mark.parametrize("method", ["source", "norm", "tent", "law"])
@pytest.mark.parametrize("wrap", OUTPUTS.values(), ids=OUTPUTS)
def test_logits_are_found_in_the_output_of_a_model(method, wrap):
    bare = driftlaw.adapt(WrapsLogits(OUTPUTS["bare"]), method)
    wrapped = driftlaw.adapt(WrapsLogits(wrap), method)
    for number in range(2):
        assert torch.equal(wrapped.step(make_images(number)).logits, bare(make_images(number)))
    assert torch.equal(wrapped.predict(make_images()), bare.predict(make_images()))


def test_per_sample_scores_use_the_extracted_logits():
    adapters = [driftlaw.adapt(WrapsLogits(OUTPUTS[name]), "law", fisher="per_sample") for name in ("bare", "dict")]
    assert torch.equal(*(adapter.step(make_images()).logits for adapter in adapters))
    assert torch.equal(*(adapter.step(make_images(1)).logits for adapter in adapters))


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda logits: None, r"returned a NoneType\. Expected logits"),
        (lambda logits: {"scores": logits}, "returned a dict with the keys scores"),
        (lambda logits: (), "returned a tuple of nothing"),
        (lambda logits: logits[:, :, None], r"returned a tensor of shape \(8, 4, 1\)"),
        (lambda logits: logits[:, :0], r"shape \(8, 0\)"),
        (lambda logits: logits[:4], r"shape \(4, 4\)"),
        (lambda logits: logits + 0j, "torch.complex64"),
        (lambda logits: logits.long(), "torch.int64"),
        (lambda logits: logits.to_sparse(), "torch.sparse_coo"),
        (lambda logits: logits[:, :1], r"one output per image.* torch.cat\(\[torch.zeros_like\(z\), z\], dim=1\)"),
    ],
)
def test_an_output_without_logits_is_refused(wrap, message):
    with pytest.raises(UsageError, match=message):
        driftlaw.adapt(WrapsLogits(wrap), "tent")(make_images())


def test_wrappers_are_removed_and_names_stay():
    model = small_model()
    # DataParallel moves a model to the GPU if there is one.
    for wrapped in (nn.DataParallel(model).cpu(), torch.compile(model), torch.compile(nn.DataParallel(model)).cpu()):
        adapter = driftlaw.adapt(wrapped)
        assert list(dict(adapter.model.named_parameters())) == list(dict(model.named_parameters()))
        assert torch.equal(adapter(make_images()), driftlaw.adapt(model)(make_images()))


def test_compiled_parts_of_a_model_are_unwrapped():
    model = tiny_model()
    model.stages[0] = torch.compile(model.stages[0])
    adapter = driftlaw.adapt(model, fisher="per_sample", overlap=False)
    assert torch.equal(adapter(make_images()), driftlaw.adapt(tiny_model(), overlap=False)(make_images()))
    assert set(dict(adapter.model.named_parameters())) == set(dict(tiny_model().named_parameters()))
    assert any("_orig_mod" in name for name, _ in model.named_parameters())


def test_a_distributed_model_is_adapted_without_its_process_group(tmp_path):
    model = tiny_model()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", world_size=1, rank=0)
    try:
        adapter = driftlaw.adapt(nn.parallel.DistributedDataParallel(model))
    finally:
        torch.distributed.destroy_process_group()
    assert torch.equal(adapter(make_images()), driftlaw.adapt(model)(make_images()))


def test_objects_that_are_not_models_are_refused():
    with pytest.raises(UsageError, match=r"Expected a torch\.nn\.Module that maps images to logits, found function"):
        driftlaw.adapt(lambda images: images)
    with pytest.raises(UsageError, match="already an adapter"):
        driftlaw.adapt(driftlaw.adapt(small_model()))


def test_a_model_that_cannot_be_copied_is_refused():
    model = small_model()
    model.cached = model[3].weight * 2
    with pytest.raises(UsageError, match="cannot be copied"):
        driftlaw.adapt(model)


def test_a_scripted_model_is_refused():
    model = torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    with pytest.raises(UsageError, match="Pass the model that it was scripted from"):
        driftlaw.adapt(model, "law")


def test_the_hooks_of_the_callers_model_are_kept():
    model = small_model()
    seen = []
    model[0].register_forward_hook(lambda layer, arguments, output: seen.append(len(output)))
    model.register_forward_hook(lambda layer, arguments, output: 2 * output)
    doubled = driftlaw.adapt(model, "source", channels_last="off")(make_images())
    assert seen == [8]
    assert torch.equal(doubled, model.eval()(make_images()).detach())
    assert len(model._forward_hooks) == 1


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (tiny_model(), 4),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()), 5),
        (nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 6, 2, 2)), 6),  # no linear layer: a U-Net
        (nn.Sequential(nn.Linear(16, 16), nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), None),
        (nn.Flatten(), None),
    ],
)
def test_the_number_of_classes_is_read_from_the_last_layer(model, expected):
    assert num_classes(model) == expected


def test_a_binary_classifier_is_reported_at_construction():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(784, 1))
    with pytest.warns(DriftlawWarning, match=r"one output per image.*torch.cat"):
        driftlaw.adapt(model)


def test_a_final_softmax_is_reported_at_construction():
    with pytest.warns(DriftlawWarning, match=r"last layer of the model is Softmax\(dim=1\). Adapters need logits"):
        driftlaw.adapt(nn.Sequential(*small_model(), nn.Softmax(1)))


def test_probabilities_are_reported_at_the_first_batch(recwarn):
    adapter = driftlaw.adapt(WrapsLogits(lambda logits: logits.softmax(1)), "tent")
    assert not recwarn.list
    with pytest.warns(DriftlawWarning, match=r"sum to 1, as probabilities do\. Adapters need logits"):
        adapter(make_images())
    adapter(make_images())
    driftlaw.adapt(WrapsLogits(lambda logits: logits.log_softmax(1)), "tent")(make_images())  # valid logits
    assert not recwarn.list


def test_a_method_that_finds_nothing_to_train_is_refused():
    class TrainsNothing(Adapter):
        name = title = "trains nothing"
        backward_cost = 1

        def update(self, images, plan):
            return StepOutput(self.model(images))

    with pytest.raises(UsageError, match="trains nothing found no parameter to train"):
        TrainsNothing(small_model())
