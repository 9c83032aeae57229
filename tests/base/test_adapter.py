"""The nouns keep their word: what an adapter accepts, keeps, gives back and refuses."""

import copy
import dataclasses
import os
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import driftlaw
from driftlaw.base import (
    Adapter,
    Batch,
    BatchStatsSettings,
    Domain,
    ImageWindow,
    StepOutput,
    Stream,
    make_adapter,
    registered_methods,
)
from driftlaw.errors import UsageError
from driftlaw.execution.locks import ForkSafeRLock
from driftlaw.testing.fixtures import make_images, tiny_model
from driftlaw.testing.snapshots import differences, model_state, state_of
from tests.testing.broken_methods import Good


def small_model(channels=4):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.Flatten(), nn.Linear(channels * 196, 4)
    )


@pytest.fixture
def adapter():
    torch.manual_seed(0)
    return Good(small_model())


# --- nouns ---------------------------------------------------------------------------------------------------------


def test_batches_domains_and_outputs_are_frozen():
    for thing in (Domain("fog", 5), StepOutput(torch.zeros(1, 2)), Batch(make_images(), None, Domain("fog"), 0, True)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            thing.extra = 1


def test_a_stream_that_cannot_skip_still_goes_on_from_a_batch():
    class Counted(Stream):
        num_classes = 2

        def __iter__(self):
            return (Batch(make_images(n), None, Domain("fog"), n, n == 0) for n in range(4))

        def __len__(self):
            return 4

        def recipe(self):
            return {}

    assert [batch.index for batch in Counted().iter_from(2)] == [2, 3]


# --- registration --------------------------------------------------------------------------------------------------


@pytest.fixture
def registry():
    before = dict(registered_methods())
    yield registered_methods()
    registered_methods().clear()
    registered_methods().update(before)


def test_a_named_class_is_registered_and_made_by_its_name(registry):
    class Mine(Good, name="mine"):
        pass

    assert registry["mine"] is Mine
    made = make_adapter("mine", small_model(), {"learning_rate": 0.5}, seed=4)
    assert isinstance(made, Mine)
    assert (made.config.learning_rate, made.seed) == (0.5, 4)


def test_a_method_without_a_title_goes_by_its_name(registry):
    class Mine(Adapter, name="mine"):
        def update(self, images, plan):
            return StepOutput(self.model(images))

    assert Mine.title == "mine"


def test_unknown_methods_and_settings_get_the_nearest_name(registry):
    class Mine(Good, name="mine"):
        pass

    with pytest.raises(UsageError, match="Did you mean 'mine'"):
        make_adapter("mane", small_model(), {})
    with pytest.raises(UsageError, match=r"Invalid settings for method mine:\n.*Did you mean 'learning_rate'"):
        make_adapter("mine", small_model(), {"learnin_rate": 1})


def test_a_method_that_needs_its_source_says_so():
    class Needy(Good):
        needs_train_data = True

    with pytest.raises(UsageError, match="needs the training data: give it as source="):
        Needy(small_model())
    Needy(small_model(), source=[])


def test_a_class_without_adapt_cannot_be_made():
    class Idle(Adapter):
        name = "idle"

    with pytest.raises(TypeError, match="adapt"):
        Idle(small_model())


# --- the copy it works on ------------------------------------------------------------------------------------------


def test_prepare_is_given_a_frozen_copy_in_eval_mode_without_gradients():
    given = []

    class Looking(Good):
        def configure(self, model):
            given.append(model_state(model))
            return super().configure(model)

    model = small_model().train()
    model[3].weight.grad = torch.ones_like(model[3].weight)
    Looking(model)
    assert not any(given[0]["learning"].values())
    assert not any(given[0]["modes"].values())
    assert all(value is None for value in given[0]["gradients"].values())
    assert model.training
    assert model[3].weight.grad is not None


def test_the_caller_keeps_the_model_when_it_changes_it_later(adapter):
    model = small_model()
    own = Good(model)
    expected = own.predict(make_images())
    with torch.no_grad():
        model[3].bias.add_(1)
    assert torch.equal(own.predict(make_images()), expected)


# --- steps ---------------------------------------------------------------------------------------------------------


def test_calling_equals_stepping_and_counts(adapter):
    twin = copy.deepcopy(adapter)
    assert torch.equal(adapter(make_images()), twin.step(make_images()).logits)
    assert adapter.steps == twin.steps == 1
    adapter.predict(make_images())
    assert adapter.steps == 1


def test_a_step_that_fails_is_not_counted_and_channels_are_told_of(adapter):
    before = state_of(adapter)
    for call in (adapter, adapter.predict):
        with pytest.raises(UsageError, match=r"channels: found 1, .* takes 3; grey images: images\.expand"):
            call(make_images()[:, :1])
        with pytest.raises(UsageError, match=r"channels: found 4, the model's first convolution takes 3$"):
            call(make_images()[:, [0, 1, 2, 0]])
    assert adapter.steps == 0
    assert differences(before, state_of(adapter)) == []


@pytest.mark.parametrize("method", ["law", "tent"])
def test_a_network_through_which_no_gradient_comes_is_told_of(method):
    class Sealed(nn.Sequential):
        @torch.no_grad()
        def forward(self, images):
            return super().forward(images)

    with pytest.raises(UsageError, match=f"no gradient comes back .* {method} learns by it"):
        driftlaw.adapt(Sealed(*small_model()), method)(make_images())


@pytest.mark.parametrize("method", ["law", "tent"])
def test_answers_that_are_not_finite_are_told_of_once(method):
    class Brittle(nn.Sequential):
        def forward(self, images):
            return super().forward(images) / (images.mean() > 0.01)

    adapter = driftlaw.adapt(Brittle(*small_model()), method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapter(make_images())
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"answers are not finite: .* reset\(\) goes back") as told:
            _ = [adapter(images) for images in (torch.zeros(4, 3, 16, 16), make_images(1))]
        assert len(told) == 1
        adapter.reset()
        assert adapter.predict(make_images()).isfinite().all()


def test_threads_that_share_an_adapter_take_turns():
    images = [make_images(number) for number in range(12)]
    adapter = driftlaw.adapt(tiny_model(), "law")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(adapter, images))
    assert adapter.steps == len(images)
    assert all(answer.isfinite().all() for answer in answers)
    assert pickle.loads(pickle.dumps(adapter)).steps == copy.deepcopy(adapter).steps == len(images)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_does_not_wait_for_a_thread_that_stayed_behind():
    lock = ForkSafeRLock()
    held, done = threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout=5) else 1)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_other_errors_of_a_network_come_through_as_they_are(adapter):
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        adapter(make_images()[:, :, :8])
    assert not isinstance(caught.value, UsageError)


def test_inference_tensors_are_taken(adapter):
    twin = copy.deepcopy(adapter)
    with torch.inference_mode():
        inside = adapter(make_images())
    assert torch.equal(inside, twin(make_images()))


def test_no_gradient_reaches_what_the_caller_made_the_images_with(adapter):
    images = make_images().requires_grad_(True)
    adapter(images)
    assert images.grad is None


def test_eval_and_train_return_the_adapter_and_change_nothing(adapter):
    before = state_of(adapter)
    assert adapter.eval() is adapter
    assert adapter.train() is adapter
    assert differences(before, state_of(adapter)) == []


# --- input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            make_images()[0],
            r"shape \(3, 16, 16\): expected \(n, channels, height, width\); a single image: images\[None\]",
        ),
        ((make_images() * 255).byte(), "for uint8 divide by 255"),
        (make_images() * 255, "expected .0, 1.; divide by 255"),
        (make_images() * 2 - 1, "leave the normalisation to the model"),
        (make_images() * torch.nan, "some pixels are NaN"),
        (make_images() * torch.inf, "expected .0, 1.|NaN"),
        (make_images()[:0], "the batch is empty"),
        (make_images()[:, :, :0], "the batch is empty"),
        (make_images().numpy(), "expected a tensor of images, found ndarray: convert it with torch.as_tensor"),
        (make_images().double(), "the model computes in torch.float32"),
        (make_images().half(), "the model computes in torch.float32"),
    ],
)
def test_wrong_images_are_refused_with_the_remedy(adapter, images, message):
    before = state_of(adapter)
    for call in (adapter, adapter.step, adapter.predict):
        with pytest.raises(UsageError, match=message):
            call(images)
    assert differences(before, state_of(adapter)) == []


def test_all_problems_of_a_shape_are_told_at_once(adapter):
    with pytest.raises(UsageError, match=r"(?s)shape \(3, 16, 16\).*dtype torch.uint8"):
        adapter((make_images()[0] * 255).byte())


def test_values_a_hair_outside_are_taken(adapter):
    adapter(make_images() * 1.0005)


# --- state ---------------------------------------------------------------------------------------------------------


def test_a_state_says_what_it_is_of(adapter):
    adapter(make_images())
    extra = adapter.state_dict()["_extra_state"]
    assert extra["method"] == "good"
    assert extra["config"] == {"learning_rate": 0.01, "careful": True}
    assert extra["steps"] == 1
    assert set(extra["optimizers"]) == {"optimizer"}
    assert set(extra["generators"]) == {"generator"}


def test_a_state_of_another_network_is_refused_and_changes_nothing(adapter):
    before = state_of(adapter)
    with pytest.raises(UsageError, match=r"model.0.weight: expected \(4, 3, 3, 3\), found \(5, 3, 3, 3\)"):
        adapter.load_state_dict(Good(small_model(5)).state_dict())
    assert differences(before, state_of(adapter)) == []


def test_a_state_of_another_optimizer_is_refused_and_changes_nothing():
    from driftlaw.methods.tent import Tent

    adapter = Tent(small_model(), Tent.Config(optimizer="sgd"))
    before = state_of(adapter)
    with pytest.warns(UserWarning, match="other settings: optimizer"), pytest.raises(UsageError, match="optimizer"):
        adapter.load_state_dict(Tent(small_model()).state_dict())
    assert differences(before, state_of(adapter)) == []


def test_a_state_that_lacks_something_is_refused(adapter):
    state = adapter.state_dict()
    for broken in ({**state, "_extra_state": {"method": "good"}}, {**state, "_extra_state": None}, {}):
        with pytest.raises(UsageError, match="expected what an adapter's state_dict"):
            adapter.load_state_dict(broken)


def test_other_settings_are_named_in_the_warning(adapter):
    other = Good(small_model(), Good.Config(learning_rate=0.5))
    with pytest.warns(UserWarning, match=r"other settings: learning_rate \(0.01 there, 0.5 here\); .* own hold"):
        other.load_state_dict(adapter.state_dict())


def test_where_settings_differ_the_adapters_own_hold_and_the_moments_are_the_saved_ones(adapter):
    adapter(make_images())
    other = Good(small_model(), Good.Config(learning_rate=0.5))
    with pytest.warns(UserWarning, match="own hold"):
        other.load_state_dict(adapter.state_dict())
    assert other.config.learning_rate == 0.5
    assert [group["lr"] for group in other.optimizer.param_groups] == [0.5]
    moments = [[entry["momentum_buffer"] for entry in one.optimizer.state.values()] for one in (adapter, other)]
    assert all(torch.equal(mine, own) for mine, own in zip(*moments, strict=True))
    assert other.steps == 1


def test_a_rate_that_a_method_changed_along_the_way_is_resumed(adapter):
    adapter.optimizer.param_groups[0]["lr"] = 0.003
    other = Good(small_model())
    other.load_state_dict(adapter.state_dict())
    assert other.optimizer.param_groups[0]["lr"] == 0.003


def test_a_state_of_another_source_is_told_of_and_a_reset_is_whole(adapter):
    torch.manual_seed(1)
    other = Good(small_model())
    own, images = model_state(other), make_images()
    adapter(images)
    with pytest.warns(UserWarning, match=r"another source network \(model.0.weight differs\).* reset\(\) goes back"):
        other.load_state_dict(adapter.state_dict())
    assert torch.equal(other.predict(images), adapter.predict(images))
    other.load_state_dict(adapter.state_dict())
    other.reset()
    assert not differences(own, model_state(other))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.load_state_dict(other.state_dict())


@pytest.mark.parametrize("method", ["law", "tent", "cotta"])
def test_a_state_that_was_assigned_goes_on_as_one_that_was_copied(method):
    first = driftlaw.adapt(tiny_model(), method)
    first(make_images())
    saved = copy.deepcopy(first.state_dict())
    copied, assigned = driftlaw.adapt(tiny_model(), method), driftlaw.adapt(tiny_model(), method)
    copied.load_state_dict(copy.deepcopy(saved))
    assigned.load_state_dict(copy.deepcopy(saved), assign=True)
    for number in (1, 2):
        assert torch.equal(copied(make_images(number)), assigned(make_images(number)))
    assert not differences(model_state(copied), model_state(assigned))
    assert differences(saved, assigned.state_dict())


def test_a_state_that_does_not_fit_for_its_settings_says_which():
    saved = driftlaw.adapt(tiny_model(), "norm", statistics="window").state_dict()
    with (
        pytest.warns(UserWarning, match="other settings"),
        pytest.raises(UsageError, match=r"other settings \(statistics \(window there, batch here\)\) and does not fit"),
    ):
        driftlaw.adapt(tiny_model(), "norm").load_state_dict(saved)


def test_what_is_loaded_becomes_its_own(adapter):
    adapter(make_images())
    other = Good(small_model())
    other.load_state_dict(adapter.state_dict())
    before = state_of(adapter)
    other(make_images(1))
    assert differences(before, state_of(adapter)) == []


@pytest.mark.parametrize("moment", ["made", "loaded", "reset"])
def test_an_adapter_made_loaded_or_reset_in_inference_mode_goes_on_outside(adapter, moment):
    adapter(make_images())
    state = copy.deepcopy(adapter.state_dict())
    other = Good(small_model())
    with torch.inference_mode():
        if moment == "made":
            other = Good(small_model())
        elif moment == "loaded":
            other.load_state_dict(state)
        else:
            other.reset()
    assert other(make_images(1)).isfinite().all()


def test_a_teacher_that_takes_no_gradients_is_reset():
    class Taught(Good):
        def setup(self, train_data):
            super().setup(train_data)
            self.teacher = copy.deepcopy(self.model).requires_grad_(False)

        def update(self, images, plan):
            output = super().update(images, plan)
            for mine, own in zip(self.teacher.parameters(), self.model.parameters(), strict=True):
                mine.data.lerp_(own.data, 0.5)
            return output

    adapter = Taught(small_model())
    before = state_of(adapter)
    adapter(make_images())
    assert any("teacher" in name for name in differences(before, state_of(adapter)))
    adapter.reset()
    assert differences(before, state_of(adapter)) == []


def test_reset_keeps_no_second_copy_of_what_is_frozen():
    adapter = Good(tiny_model())
    kept = set(adapter._birth["tensors"])
    frozen = {f"model.{name}" for name, value in adapter.model.named_parameters() if not value.requires_grad}
    assert frozen
    assert not kept & frozen


def test_an_adapter_moved_to_float64_goes_on_and_resets(adapter):
    fresh = copy.deepcopy(adapter).double()
    adapter(make_images())
    adapter.double()
    assert adapter(make_images(1, dtype=torch.float64)).dtype == torch.float64
    assert all(value["momentum_buffer"].dtype == torch.float64 for value in adapter.optimizer.state.values())
    adapter.reset()
    assert differences(state_of(fresh), state_of(adapter)) == []


# --- the networks of others ----------------------------------------------------------------------------------------


class Answering(nn.Module):
    """A network that wraps its logits up."""

    def __init__(self, wrap):
        super().__init__()
        torch.manual_seed(0)
        self.inner = small_model()
        self.wrap = wrap

    def forward(self, images):
        return self.wrap(self.inner(images))


WRAPPINGS = {
    "bare": lambda logits: logits,
    "tuple": lambda logits: (logits, logits.mean()),
    "list": lambda logits: [None, logits],
    "dict": lambda logits: {"loss": None, "logits": logits},
    "object": lambda logits: SimpleNamespace(logits=logits, hidden_states=None),
}


@pytest.mark.parametrize("method", ["source", "norm", "tent", "law"])
@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS)
def test_logits_are_found_in_whatever_a_network_answers(method, wrap):
    bare = driftlaw.adapt(Answering(WRAPPINGS["bare"]), method)
    wrapped = driftlaw.adapt(Answering(wrap), method)
    for number in range(2):
        assert torch.equal(wrapped(make_images(number)), bare(make_images(number)))
    assert torch.equal(wrapped.predict(make_images()), bare.predict(make_images()))


def test_per_sample_scores_see_the_logits_too():
    adapters = [driftlaw.adapt(Answering(WRAPPINGS[name]), "law", fisher="per_sample") for name in ("bare", "dict")]
    assert torch.equal(*(adapter(make_images()) for adapter in adapters))
    assert torch.equal(*(adapter(make_images(1)) for adapter in adapters))


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda logits: None, "answered a NoneType: expected logits"),
        (lambda logits: {"scores": logits}, "answered a dict with the keys scores"),
        (lambda logits: (), "answered a tuple of nothing"),
        (lambda logits: logits[:, :, None], r"answered a tensor of shape \(8, 4, 1\)"),
    ],
)
def test_an_answer_without_logits_is_refused_with_what_came_back(wrap, message):
    with pytest.raises(UsageError, match=message):
        driftlaw.adapt(Answering(wrap), "tent")(make_images())


def test_wrappers_are_taken_off_and_the_names_stay():
    model = small_model()
    for wrapped in (nn.DataParallel(model), torch.compile(model), torch.compile(nn.DataParallel(model))):
        adapter = driftlaw.adapt(wrapped)
        assert list(dict(adapter.model.named_parameters())) == list(dict(model.named_parameters()))
        assert torch.equal(adapter(make_images()), driftlaw.adapt(model)(make_images()))


def test_compiled_parts_of_a_network_are_taken_off_too():
    model = tiny_model()
    model.stages[0] = torch.compile(model.stages[0])
    adapter = driftlaw.adapt(model, fisher="per_sample")
    assert torch.equal(adapter(make_images()), driftlaw.adapt(tiny_model())(make_images()))
    assert set(dict(adapter.model.named_parameters())) == set(dict(tiny_model().named_parameters()))
    assert any("_orig_mod" in name for name, _ in model.named_parameters())


def test_a_network_that_was_distributed_is_adapted_without_its_group(tmp_path):
    model = tiny_model()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", world_size=1, rank=0)
    try:
        adapter = driftlaw.adapt(nn.parallel.DistributedDataParallel(model))
    finally:
        torch.distributed.destroy_process_group()
    assert torch.equal(adapter(make_images()), driftlaw.adapt(model)(make_images()))


def test_what_is_no_network_is_refused_with_a_reason():
    with pytest.raises(UsageError, match=r"expected a torch\.nn\.Module that maps images to logits, found function"):
        driftlaw.adapt(lambda images: images)
    with pytest.raises(UsageError, match="an adapter already"):
        driftlaw.adapt(driftlaw.adapt(small_model()))


def test_a_network_that_cannot_be_copied_is_refused_with_a_reason():
    model = small_model()
    model.cached = model[3].weight * 2
    with pytest.raises(UsageError, match="cannot be copied"):
        driftlaw.adapt(model)


def test_a_scripted_model_is_refused_with_what_to_give():
    model = torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    with pytest.raises(UsageError, match="give the model it was made from"):
        driftlaw.adapt(model, "law")


def test_the_hooks_of_the_callers_network_are_kept():
    model = small_model()
    seen = []
    model[0].register_forward_hook(lambda layer, arguments, answer: seen.append(len(answer)))
    model.register_forward_hook(lambda layer, arguments, answer: 2 * answer)
    doubled = driftlaw.adapt(model, "source")(make_images())
    assert seen == [8]
    assert torch.equal(doubled, model.eval()(make_images()).detach())
    assert len(model._forward_hooks) == 1


# --- dtypes, layouts, moves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("method", ["source", "norm", "tent", "law"])
def test_under_autocast_images_of_any_float_dtype_are_answered_and_weights_stay_float32(method, dtype):
    adapter = driftlaw.adapt(small_model(), method)
    with torch.autocast("cpu", dtype=torch.float16):
        for number in range(2):
            assert adapter(make_images(number, dtype=dtype)).isfinite().all()
        assert adapter.predict(make_images(dtype=dtype)).dtype == torch.float16
    assert {value.dtype for value in adapter.parameters()} == {torch.float32}
    assert adapter(make_images()).dtype == torch.float32


def test_under_autocast_a_step_is_seen_by_the_next():
    adapter = driftlaw.adapt(small_model(), "law", learning_rate=0.1)
    with torch.autocast("cpu", dtype=torch.float16):
        before = adapter.predict(make_images())
        adapter(make_images())
        after = adapter.predict(make_images())
        assert torch.is_autocast_cache_enabled()
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(adapter.predict(make_images()), after)
    assert not torch.equal(after, before)


@pytest.mark.parametrize("settings", [{}, {"fisher": "per_sample"}, {"statistics": "mixed"}, {"statistics": "window"}])
def test_channels_last_changes_nothing_but_rounding(settings):
    model = tiny_model().double()
    plain, last = (driftlaw.adapt(model, "law", **settings) for _ in range(2))
    last.to(memory_format=torch.channels_last)
    for number in range(3):
        images = make_images(number, dtype=torch.float64)
        answer = last(images.to(memory_format=torch.channels_last))
        torch.testing.assert_close(answer, plain(images), rtol=0, atol=1e-8)
    last.reset()
    plain.reset()
    assert torch.equal(last.model.conv.weight, plain.model.conv.weight)


@pytest.mark.parametrize(
    ("method", "settings"),
    [("tent", {}), ("tent", {"statistics": "window"}), ("law", {"moments": "kept"}), ("law", {"statistics": "window"})],
    ids=str,
)
def test_an_adapter_that_was_moved_goes_on_as_one_born_there(method, settings):
    moved, born = (
        driftlaw.adapt(tiny_model(), method, **settings),
        driftlaw.adapt(tiny_model().double(), method, **settings),
    )
    moved(make_images())
    moved.double().reset()
    for number in range(3):
        images = make_images(number, dtype=torch.float64)
        torch.testing.assert_close(moved(images), born(images), rtol=0, atol=1e-12)
    for one, other in zip(moved.parameters(), born.parameters(), strict=True):
        assert one.dtype == torch.float64
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"statistics": "mixed"}, {"statistics": "window"}], ids=str)
def test_an_adapter_comes_whole_out_of_a_pickle_and_a_deep_copy(settings):
    adapter = driftlaw.adapt(tiny_model(), "tent", **settings)
    adapter(make_images(0, count=3))
    twins = [pickle.loads(pickle.dumps(adapter)), copy.deepcopy(adapter)]
    expected = [adapter(make_images(number, count=3)) for number in (1, 2)]
    for twin in twins:
        answers = [twin(make_images(number, count=3)) for number in (1, 2)]
        assert differences(expected, answers) == []
        assert differences(state_of(adapter), state_of(twin)) == []


# --- small batches -------------------------------------------------------------------------------------------------


def narrow_model():
    """Its feature maps shrink to 1×1 before the last norm layer."""
    torch.manual_seed(0)
    body = [nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*body, nn.Conv2d(6, 5, 1), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(5, 4))


def test_the_settings_of_small_batches_are_said_only_where_they_are_changed():
    class Config(BatchStatsSettings):
        rate: float = 1.0

    assert Config().model_dump(mode="json") == {"rate": 1.0}
    changed = Config(statistics="window", window=8)
    assert changed.model_dump(mode="json") == {"rate": 1.0, "statistics": "window", "window": 8}
    assert Config.model_validate(changed.model_dump()) == changed


def test_a_setting_that_would_do_nothing_is_refused():
    with pytest.raises(UsageError, match=r"source_share = 0.3 goes with statistics = «mixed»"):
        driftlaw.adapt(small_model(), source_share=0.3)
    with pytest.raises(UsageError, match=r"«mixed»:\n  - window = 8 goes with statistics = «window»"):
        driftlaw.adapt(small_model(), statistics="mixed", window=8)


def test_recent_images_are_the_last_ones_in_the_order_they_came():
    recent = ImageWindow(5)
    images = torch.arange(9.0).view(9, 1, 1, 1)
    assert torch.equal(recent.complete(images[:2]), images[:2])
    recent.keep(images[:2])
    assert torch.equal(recent.complete(images[2:4]), images[:4])
    recent.keep(images[2:7])
    assert torch.equal(recent.complete(images[7:8]), images[3:8])
    assert torch.equal(recent.complete(images[3:9]), images[3:9])
    assert recent.images.shape[0] == 5
    wide = torch.zeros(1, 1, 2, 2)
    assert torch.equal(recent.complete(wide), wide)
    recent.keep(wide)
    assert recent.filled == 1


@pytest.mark.parametrize("method", ["norm", "tent", "law"])
def test_single_images_with_a_window_are_answered_as_the_last_ones_of_a_batch(method):
    images = make_images()
    single = driftlaw.adapt(tiny_model(), method, statistics="window", window=8, minimum_batch=8)
    with pytest.warns(UserWarning, match="a batch of 1 is answered and not learned from") as caught:
        answers = [single(image[None]) for image in images]
    assert len(caught) == 1
    whole = driftlaw.adapt(tiny_model(), method)
    torch.testing.assert_close(answers[-1], whole(images)[-1:], rtol=0, atol=1e-6)
    assert single.steps == whole.steps == 1
    for one, other in zip(single.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_predicting_with_a_window_says_what_the_step_says_and_keeps_nothing():
    adapter = driftlaw.adapt(tiny_model(), "law", statistics="window", window=8)
    adapter(make_images())
    before = state_of(adapter)
    said = adapter.predict(make_images(1, count=2))
    assert differences(before, state_of(adapter)) == []
    assert torch.equal(adapter(make_images(1, count=2)), said)


def test_a_state_with_a_window_is_resumed_and_one_without_is_refused():
    adapter = driftlaw.adapt(tiny_model(), "tent", statistics="window", window=6)
    adapter(make_images(0, count=4))
    other = driftlaw.adapt(tiny_model(), "tent", statistics="window", window=6)
    other.load_state_dict(adapter.state_dict())
    assert torch.equal(other(make_images(1, count=2)), adapter(make_images(1, count=2)))
    plain = driftlaw.adapt(tiny_model(), "tent")
    with pytest.warns(UserWarning, match="statistics"), pytest.raises(UsageError, match="recent"):
        plain.load_state_dict(adapter.state_dict())


@pytest.mark.parametrize("method", ["norm", "tent", "law"])
def test_below_the_minimum_an_adapter_answers_does_not_learn_and_says_so_once(method):
    adapter = driftlaw.adapt(tiny_model(), method, minimum_batch=4)
    before = state_of(adapter)
    with pytest.warns(UserWarning, match=r"a batch of 3 .* learns from 4 or more \(minimum_batch\)") as caught:
        answers = [adapter(make_images(number, count=3)) for number in range(3)]
    assert len(caught) == 1
    assert differences(before, state_of(adapter)) == []
    assert torch.equal(answers[0], adapter.predict(make_images(0, count=3)))
    adapter(make_images(count=4))
    assert adapter.steps == 1


@pytest.mark.parametrize("settings", [{}, {"statistics": "window"}], ids=str)
@pytest.mark.parametrize("method", ["norm", "tent", "law"])
def test_one_image_without_statistics_is_answered_with_those_of_the_source(method, settings):
    model = narrow_model().eval()
    adapter = driftlaw.adapt(model, method, **settings)
    before = state_of(adapter)["modes"]
    image = make_images(count=1)
    with pytest.warns(UserWarning, match="shrink to 1×1"):
        answer = adapter(image)
    assert torch.equal(answer, model(image).detach())
    assert adapter.steps == 0
    assert state_of(adapter)["modes"] == before
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adapter(make_images(1)).isfinite().all()
    assert adapter.steps == 1


@pytest.mark.parametrize("statistics", ["batch", "mixed"])
def test_one_image_after_the_other_is_warned_about_once_where_it_has_to_be_its_own_batch(statistics):
    adapter = driftlaw.adapt(tiny_model(), "norm", statistics=statistics)
    with pytest.warns(UserWarning, match="one image alone makes poor statistics: take statistics = «window»") as caught:
        answers = [adapter(make_images(number, count=1)) for number in range(3)]
    assert all(answer.shape == (1, 4) for answer in answers)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    without_batches = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(784, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        driftlaw.adapt(without_batches)(make_images(count=1))
        driftlaw.adapt(tiny_model(), "source")(make_images(count=1))
        driftlaw.adapt(tiny_model(), "tent", statistics="window")(make_images(count=1))


def test_mixed_statistics_let_one_image_be_learned_from():
    adapter = driftlaw.adapt(narrow_model(), "tent", statistics="mixed")
    with pytest.warns(UserWarning, match="one image alone"):
        assert adapter(make_images(count=1)).isfinite().all()
    assert adapter.steps == 1


def test_one_image_that_has_no_statistics_anywhere_is_refused():
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(3, track_running_stats=False), nn.Flatten())
    with pytest.raises(UsageError, match="the model stores none: give more"):
        driftlaw.adapt(model, "norm").predict(make_images(count=1))
