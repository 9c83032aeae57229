"""A method that keeps every promise of the contract, and methods that each break one."""

import itertools
import random

import numpy as np
import torch
from pydantic import BaseModel
from torch import nn

from driftlaw.base import Adapter, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import entropy
from driftlaw.components.parameters import select_parameters
from driftlaw.errors import UsageError
from driftlaw.settings import Settings

BROKEN = []
"""(the check that must fail, the method, a phrase of the reason)."""


def breaks(check, reason):
    def note(kind):
        BROKEN.append((check, kind, reason))
        return kind

    return note


class Good(Adapter):
    """Has an optimizer, a buffer, settings, facts and randomness of its own; not registered, so nobody lists it."""

    name = "good"
    title = "Good"
    adapts = "scale and shift of norm layers"

    class Config(Settings):
        learning_rate: float = 0.01
        careful: bool = True

    def configure(self, model):
        chosen = select_parameters(model, ["norm"])
        if not chosen:
            raise UsageError("good learns norm layers, and this model has none: take another method")
        for value in chosen.values():
            value.requires_grad_(True)
        use_batch_stats(model)

    def setup(self, train_data):
        learning = [value for value in self.model.parameters() if value.requires_grad]
        self.optimizer = torch.optim.SGD(learning, lr=self.config.learning_rate, momentum=0.9)
        self.register_buffer("average", torch.zeros(2, dtype=learning[0].dtype))

    def update(self, images, plan):
        logits = self.model(images)
        share = torch.rand((), generator=self.generator).to(images.dtype)
        loss = entropy(logits) * (1 + share + self.average[0])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.mul_(0.9).add_(0.1 * loss.detach())
        return StepOutput(logits.detach(), {"loss": float(loss.detach()), "average": self.average.clone()})

    def diagnostic_labels(self):
        return {"average": ["fast", "slow"]}


# --- answers -------------------------------------------------------------------------------------------------------


@breaks("it_says_what_it_is", "nothing as its title")
class Untitled(Good):
    title = ""


class WithoutDefault(Good):
    class Config(Good.Config):
        amount: float


@breaks("it_says_what_it_is", "Config can be changed")
class Changeable(Good):
    class Config(BaseModel):
        learning_rate: float = 0.01


@breaks("answers_have_the_right_shape_and_are_finite", r"shape \(8, 3\): expected \(8, 4\)")
class Narrow(Good):
    def update(self, images, plan):
        return StepOutput(super().update(images, plan).logits[:, :3])


@breaks("answers_have_the_right_shape_and_are_finite", "not finite")
class Infinite(Good):
    def update(self, images, plan):
        return StepOutput(super().update(images, plan).logits / 0)


@breaks("answers_have_the_right_shape_and_are_finite", "logits carry a graph")
class Attached(Good):
    def update(self, images, plan):
        return StepOutput(self.model(images))


@breaks("answers_have_the_right_shape_and_are_finite", "returned Tensor: expected a StepOutput")
class Bare(Good):
    def update(self, images, plan):
        return super().update(images, plan).logits


@breaks("answers_have_the_right_shape_and_are_finite", "average has 2 entries, diagnostic_labels")
class Unlabelled(Good):
    def diagnostic_labels(self):
        return {}


@breaks("answers_have_the_right_shape_and_are_finite", "the fact answer has shape")
class Verbose(Good):
    def update(self, images, plan):
        logits = super().update(images, plan).logits
        return StepOutput(logits, {"answer": logits})


@breaks("modes_around_it_change_nothing", r"after \.eval\(\) it does something else")
class Obedient(Good):
    def train(self, mode=True):
        return nn.Module.train(self, mode)


@breaks("modes_around_it_change_nothing", "does not require grad")
class AtTheCallersMercy(Good):
    def step(self, images):
        self.steps += 1
        return self.update(images, self.draw(images))


@breaks("a_batch_of_one_works_or_is_refused", "more than one")
class Sociable(Good):
    def update(self, images, plan):
        if len(images) < 2:
            raise ValueError("more than one, please")
        return super().update(images, plan)


@breaks("a_batch_of_one_works_or_is_refused", "without a reason")
class Curt(Good):
    def update(self, images, plan):
        if len(images) < 2:
            raise UsageError("")
        return super().update(images, plan)


@breaks("a_batch_of_one_works_or_is_refused", "but it changed")
class TooLate(Good):
    def update(self, images, plan):
        output = super().update(images, plan)
        if len(images) < 2:
            raise UsageError("give me two")
        return output


@breaks("a_model_without_norm_layers_works_or_is_refused", "empty parameter list")
class NormOnly(Good):
    def configure(self, model):
        for value in select_parameters(model, ["norm"]).values():
            value.requires_grad_(True)


@breaks("wrong_input_is_refused_and_changes_nothing", "expected a UsageError")
class Trusting(Good):
    def _checked(self, images):
        return images


@breaks("wrong_input_is_refused_and_changes_nothing", "not without changing saved._extra_state.steps")
class Hasty(Good):
    def step(self, images):
        self.steps += 1
        return super().step(images)


@breaks("float64_models_work", "logits are torch.float32")
class SinglePrecision(Good):
    def update(self, images, plan):
        return StepOutput(super().update(images, plan).logits.float())


# --- states --------------------------------------------------------------------------------------------------------


@breaks("reset_equals_fresh", "or draws from, is no registered state")
class Hidden(Good):
    def setup(self, train_data):
        super().setup(train_data)
        self.offset = torch.zeros(())

    def update(self, images, plan):
        self.offset = self.offset + 0.1
        return StepOutput(super().update(images, plan).logits + self.offset)


@breaks("saving_and_loading_changes_nothing", "or draws from, is no registered state")
class HiddenToo(Hidden):
    pass


@breaks("reset_equals_fresh", "these attributes differ: count")
class Counting(Good):
    def setup(self, train_data):
        super().setup(train_data)
        self.count = 0

    def update(self, images, plan):
        self.count += 1
        return super().update(images, plan)


@breaks("saving_and_loading_changes_nothing", "these attributes differ: count")
class CountingToo(Counting):
    pass


@breaks("reset_equals_fresh", "leaves saved.average, saved._extra_state.steps")
class Forgetful(Good):
    def reset(self):
        self.load_state_dict(self.state_dict())


@breaks("reset_equals_fresh", "leaves saved.model.teacher")
class FrozenTeacher(Good):
    """Its teacher moves though it requires no gradients, inside the model, where reset() saves the memory for it."""

    def configure(self, model):
        super().configure(model)
        model.register_parameter("teacher", nn.Parameter(torch.zeros(()), requires_grad=False))

    def update(self, images, plan):
        self.model.teacher.data.add_(1)
        return super().update(images, plan)


@breaks("saving_and_loading_changes_nothing", "no registered state|differ from what was saved")
class WithoutMoments(Good):
    def set_extra_state(self, state):
        self.steps = state["steps"]


@breaks("saving_and_loading_changes_nothing", "buffers.average differ from what was saved")
class NotPersistent(Good):
    def setup(self, train_data):
        super().setup(train_data)
        average = self.average
        del self.average
        self.register_buffer("average", average, persistent=False)


@breaks("saving_and_loading_changes_nothing", "Weights only load failed")
class Exotic(Good):
    def get_extra_state(self):
        return super().get_extra_state() | {"config_object": self.config}


@breaks("the_state_does_not_grow", "these attributes grew: history")
class Nostalgic(Good):
    def setup(self, train_data):
        super().setup(train_data)
        self.history = []

    def update(self, images, plan):
        self.history.append(1)
        return super().update(images, plan)


@breaks("the_state_does_not_grow", "tensors of .* bytes in the state after 5 steps")
class Hoarding(Good):
    def update(self, images, plan):
        output = super().update(images, plan)
        self.average = torch.cat([self.average, output.logits.flatten()[:2]])
        return StepOutput(output.logits)


@breaks("the_state_does_not_grow", "the saved file grew by")
class Diary(Good):
    def get_extra_state(self):
        return super().get_extra_state() | {"pages": "a page of text, " * self.steps}


@breaks("the_state_does_not_grow", "last keep the graphs of past steps alive")
class Leaking(Good):
    def update(self, images, plan):
        self.last = entropy(self.model(images))
        return super().update(images, plan)


@breaks("another_methods_state_is_refused", "the state of another method was taken")
class Omnivorous(Good):
    def load_state_dict(self, state_dict, strict=True, assign=False):
        tensors = {name: value for name, value in state_dict.items() if name != "_extra_state"}
        return nn.Module.load_state_dict(self, tensors, strict=False)


@breaks("other_settings_are_warned_about", "made with another learning_rate is loaded without a warning")
class Silent(Good):
    def load_state_dict(self, state_dict, strict=True, assign=False):
        return nn.Module.load_state_dict(self, state_dict, strict, assign)


@breaks("a_deep_copy_goes_its_own_way", "the steps of a deep copy changed")
class Entangled(Good):
    def __deepcopy__(self, memo):
        return self


# --- side effects --------------------------------------------------------------------------------------------------


@breaks("input_and_the_callers_model_stay_as_they_were", "images that were handed in have changed")
class Careless(Good):
    def update(self, images, plan):
        return super().update(images.mul_(0.5), plan)


@breaks("input_and_the_callers_model_stay_as_they_were", "caller's model has changed: values.head.bias")
class Intrusive(Good):
    def __init__(self, model, config=None, *, seed=0, train_data=None):
        super().__init__(model, config, seed=seed, train_data=train_data)
        model.head.bias.data.add_(1)


@breaks("input_and_the_callers_model_stay_as_they_were", "caller's model has changed: modes")
class Sleepy(Good):
    def __init__(self, model, config=None, *, seed=0, train_data=None):
        super().__init__(model.eval(), config, seed=seed, train_data=train_data)


@breaks("input_and_the_callers_model_stay_as_they_were", "caller's model has changed: learning")
class Freezing(Good):
    def __init__(self, model, config=None, *, seed=0, train_data=None):
        super().__init__(model.requires_grad_(False), config, seed=seed, train_data=train_data)


@breaks("the_seed_alone_decides", "with another global seed")
class Fickle(Good):
    def update(self, images, plan):
        return super().update((images + 0.1 * torch.rand_like(images)).clamp(0, 1), plan)


@breaks("the_global_random_state_is_not_touched", "random state of torch has moved")
class FickleToo(Fickle):
    pass


@breaks("the_global_random_state_is_not_touched", "random state of torch has moved")
class Sowing(Good):
    def setup(self, train_data):
        super().setup(train_data)
        torch.manual_seed(self.seed)


@breaks("the_global_random_state_is_not_touched", "random state of numpy, random has moved")
class Dicing(Good):
    def update(self, images, plan):
        np.random.rand()
        random.random()
        return super().update(images, plan)


@breaks("only_what_it_says_learns_has_moved", r"norm1\.running_mean.* moved")
class Tracking(Good):
    def configure(self, model):
        super().configure(model)
        for layer in model.modules():
            layer.track_running_stats = True


@breaks("only_what_it_says_learns_has_moved", "no running statistic moved")
class AllTalk(Good):
    updates_running_stats = True


@breaks("only_what_it_says_learns_has_moved", "head.bias moved")
class Reaching(Good):
    def update(self, images, plan):
        self.model.head.bias.data.add_(0.1)
        return super().update(images, plan)


@breaks("only_what_it_says_learns_has_moved", "adapts says «nothing», but")
class Modest(Good):
    adapts = "nothing"


@breaks("only_what_it_says_learns_has_moved", "but nothing moved in three steps")
class Idle(Good):
    class Config(Settings):
        learning_rate: float = 0.0


@breaks("only_what_it_says_learns_has_moved", "but no parameter requires gradients")
class Boastful(Adapter):
    name, title, adapts = "boastful", "Boastful", "everything"

    def update(self, images, plan):
        return StepOutput(self.model(images))


@breaks("predict_changes_nothing", "changes state.saved")
class Learning(Good):
    def predict(self, images):
        return self(images)


@breaks("predict_changes_nothing", "generators.generator")
class Drawing(Good):
    def predict(self, images):
        torch.rand((), generator=self.generator)
        return super().predict(images)


@breaks("predict_changes_nothing", "another answer the second time")
class Moody(Good):
    def predict(self, images):
        return super().predict(images) + torch.rand(())


@breaks("no_stale_gradient_is_left_behind", "left on the adapter's model")
class Untidy(Good):
    def update(self, images, plan):
        self.optimizer.zero_grad(set_to_none=True)
        output = super().update(images, plan)
        entropy(self.model(images)).backward()
        return output


CALLS = itertools.count()


@breaks("a_run_gives_the_same_record_twice", r"differ in .*facts\.calls")
class Numbered(Good):
    def update(self, images, plan):
        return StepOutput(super().update(images, plan).logits, {"calls": next(CALLS)})
