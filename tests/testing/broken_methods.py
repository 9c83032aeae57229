"""A method that passes every conformance check, and methods that each fail one."""

import itertools
import math
import random

import numpy as np
import torch
from pydantic import BaseModel
from torch import nn

from driftlaw.base import Adapter, Plan, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import entropy
from driftlaw.components.parameters import select_parameters
from driftlaw.errors import UsageError
from driftlaw.settings import Settings

BROKEN = []
"""Tuples (name of the check that must fail, method, regular expression for the reason)."""


def fails(check, reason):
    def register(kind):
        BROKEN.append((check, kind, reason))
        return kind

    return register


class Good(Adapter):
    """Has an optimizer, a buffer, settings, diagnostics and random numbers. Not registered, so never listed."""

    name = "good"
    title = "Good"
    adapts = "scale and shift of norm layers"

    class Config(Settings):
        learning_rate: float = 0.01
        careful: bool = True

    def configure(self, model):
        parameters = select_parameters(model, ["norm"])
        if not parameters:
            raise UsageError("The model has no normalisation layers. Use another method.")
        for value in parameters.values():
            value.requires_grad_(True)
        use_batch_stats(model)

    def setup(self, train_data):
        trainable = [value for value in self.model.parameters() if value.requires_grad]
        self.optimizer = torch.optim.SGD(trainable, lr=self.config.learning_rate, momentum=0.9)
        self.register_buffer("average", torch.zeros(2, dtype=trainable[0].dtype))

    def draw(self, images):
        return Plan(host=(int(torch.randint(100, (), generator=self.generator)),))

    def update(self, images, plan):
        logits = self.model(images)
        loss = entropy(logits) * (1 + plan.host[0] / 100 + self.average[0])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.mul_(0.9).add_(0.1 * loss.detach())
        return StepOutput(logits.detach(), {"loss": loss.detach(), "average": self.average.clone()})

    def diagnostic_labels(self):
        return {"average": ["fast", "slow"]}


class ConfidentOnly(Good):
    """Like EATA, updates only on images whose entropy is below ``threshold`` · ln(classes)."""

    name = "confident-only"
    title = "Confident only"

    class Config(Good.Config):
        threshold: float = 0.4

    def update(self, images, plan):
        logits = self.model(images)
        entropies = torch.distributions.Categorical(logits=logits).entropy()
        kept = (entropies.detach() < self.config.threshold * math.log(logits.shape[1])).to(logits.dtype)
        ((kept * entropies).sum() / kept.sum().clamp(min=1)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return StepOutput(logits.detach(), {"kept": kept.mean()})


# --- outputs -------------------------------------------------------------------------------------------------------


@fails("declares_metadata", "does not declare title")
class NoTitle(Good):
    title = ""


class SettingWithoutDefault(Good):
    class Config(Good.Config):
        amount: float


@fails("declares_metadata", "Config is mutable")
class MutableConfig(Good):
    class Config(BaseModel):
        learning_rate: float = 0.01


@fails("logits_and_diagnostics_are_valid", r"shape \(8, 3\), expected \(8, 4\)")
class TooFewClasses(Good):
    def update(self, images, plan):
        return StepOutput(super().update(images, plan).logits[:, :3])


@fails("logits_and_diagnostics_are_valid", "NaN or infinite")
class InfiniteLogits(Good):
    def update(self, images, plan):
        return StepOutput(super().update(images, plan).logits / 0)


@fails("logits_and_diagnostics_are_valid", "Logits require grad")
class UndetachedLogits(Good):
    def update(self, images, plan):
        return StepOutput(self.model(images))


@fails("logits_and_diagnostics_are_valid", "returned a Tensor, expected a StepOutput")
class ReturnsTensor(Good):
    def update(self, images, plan):
        return super().update(images, plan).logits


@fails("logits_and_diagnostics_are_valid", "'average' has 2 entries, but diagnostic_labels")
class UnlabelledDiagnostic(Good):
    def diagnostic_labels(self):
        return {}


@fails("logits_and_diagnostics_are_valid", "Diagnostic 'logits' has shape")
class MatrixDiagnostic(Good):
    def update(self, images, plan):
        logits = super().update(images, plan).logits
        return StepOutput(logits, {"logits": logits})


@fails("predicts_before_update", "from after its update")
class PredictsAfterUpdate(Good):
    def update(self, images, plan):
        super().update(images, plan)
        return StepOutput(self.model(images).detach())


@fails("independent_of_grad_and_train_mode", r"Results differ after \.eval\(\)")
class FollowsTrainMode(Good):
    def train(self, mode=True):
        return nn.Module.train(self, mode)


@fails("independent_of_grad_and_train_mode", "does not require grad")
class FollowsGradMode(Good):
    def step(self, images):
        self.steps += 1
        return self.update(images, self.draw(images))


@fails("single_image_works_or_is_rejected", "at least two images")
class NeedsBatch(Good):
    def update(self, images, plan):
        if len(images) < 2:
            raise ValueError("at least two images")
        return super().update(images, plan)


@fails("single_image_works_or_is_rejected", "an empty message")
class RejectsWithoutReason(Good):
    def update(self, images, plan):
        if len(images) < 2:
            raise UsageError("")
        return super().update(images, plan)


@fails("model_without_norm_layers_works_or_is_rejected", "empty parameter list")
class AssumesNormLayers(Good):
    def configure(self, model):
        for value in select_parameters(model, ["norm"]).values():
            value.requires_grad_(True)


@fails("rejects_invalid_input", "expected a UsageError")
class AcceptsAnyInput(Good):
    def step(self, images):
        return StepOutput(torch.zeros(len(images), 4))


@fails("rejects_invalid_input", "Rejecting int64 images changed saved._extra_state.steps")
class CountsBeforeChecking(Good):
    def step(self, images):
        self.steps += 1
        return super().step(images)


@fails("supports_float64", "Logits are torch.float32")
class CastsToFloat32(Good):
    def update(self, images, plan):
        return StepOutput(super().update(images, plan).logits.float())


# --- state --------------------------------------------------------------------------------------------------------


@fails("reset_restores_initial_state", "outside its registered state")
class HiddenOffset(Good):
    def setup(self, train_data):
        super().setup(train_data)
        self.offset = torch.zeros(())

    def update(self, images, plan):
        self.offset = self.offset + 0.1
        return StepOutput(super().update(images, plan).logits + self.offset)


@fails("save_and_load_continue_exactly", "outside its registered state")
class HiddenOffsetWhenLoaded(HiddenOffset):
    pass


@fails("reset_restores_initial_state", "these attributes differ: count")
class UnregisteredCounter(Good):
    def setup(self, train_data):
        super().setup(train_data)
        self.count = 0

    def update(self, images, plan):
        self.count += 1
        return super().update(images, plan)


@fails("save_and_load_continue_exactly", "these attributes differ: count")
class UnregisteredCounterWhenLoaded(UnregisteredCounter):
    pass


@fails("reset_restores_initial_state", "does not restore saved.average, saved._extra_state.steps")
class ResetDoesNothing(Good):
    def reset(self):
        self.load_state_dict(self.state_dict())


@fails("reset_restores_initial_state", "does not restore saved.model.frozen")
class UpdatesFrozenParameter(Good):
    """Changes a frozen parameter of the model, which reset() does not restore because it keeps no copy of it."""

    def configure(self, model):
        super().configure(model)
        model.register_parameter("frozen", nn.Parameter(torch.zeros(()), requires_grad=False))

    def update(self, images, plan):
        self.model.frozen.data.add_(1)
        return super().update(images, plan)


@fails("save_and_load_continue_exactly", "outside its registered state|differ from what was saved")
class LosesOptimizerState(Good):
    def set_extra_state(self, state):
        self.steps = state["steps"]


@fails("save_and_load_continue_exactly", "buffers.average differ from what was saved")
class NonPersistentBuffer(Good):
    def setup(self, train_data):
        super().setup(train_data)
        average = self.average
        del self.average
        self.register_buffer("average", average, persistent=False)


@fails("save_and_load_continue_exactly", "Weights only load failed")
class SavesPythonObject(Good):
    def get_extra_state(self):
        return super().get_extra_state() | {"config_object": self.config}


@fails("state_size_is_constant", "These attributes grew between step 20 and step 50: history")
class GrowingList(Good):
    def setup(self, train_data):
        super().setup(train_data)
        self.history = []

    def update(self, images, plan):
        self.history.append(1)
        return super().update(images, plan)


@fails("state_size_is_constant", "These attributes grew between step 20 and step 50: _buffers")
class GrowingBuffer(Good):
    def update(self, images, plan):
        output = super().update(images, plan)
        self.average = torch.cat([self.average, output.logits.flatten()[:2]])
        return StepOutput(output.logits)


@fails("state_size_is_constant", "The saved file grew by")
class GrowingFile(Good):
    def get_extra_state(self):
        return super().get_extra_state() | {"log": "some text, " * self.steps}


@fails("state_size_is_constant", "last hold autograd graphs")
class KeepsGraph(Good):
    def update(self, images, plan):
        self.last = entropy(self.model(images))
        return super().update(images, plan)


@fails("rejects_state_of_other_method", "The state of another method was loaded")
class LoadsAnyState(Good):
    def load_state_dict(self, state_dict, strict=True, assign=False):
        tensors = {name: value for name, value in state_dict.items() if name != "_extra_state"}
        return nn.Module.load_state_dict(self, tensors, strict=False)


@fails("warns_about_different_settings", "different learning_rate loads without warning")
class LoadsWithoutWarning(Good):
    def load_state_dict(self, state_dict, strict=True, assign=False):
        return nn.Module.load_state_dict(self, state_dict, strict, assign)


@fails("deepcopy_is_independent", "Steps of a deep copy changed")
class SharedDeepCopy(Good):
    def __deepcopy__(self, memo):
        return self


# --- side effects --------------------------------------------------------------------------------------------------


@fails("input_and_model_are_unchanged", "The caller's images were changed")
class ChangesImages(Good):
    def update(self, images, plan):
        return super().update(images.mul_(0.5), plan)


@fails("input_and_model_are_unchanged", "caller's model was changed: saved.head.bias")
class ChangesCallersModel(Good):
    def __init__(self, model, config=None, *, seed=0, train_data=None):
        super().__init__(model, config, seed=seed, train_data=train_data)
        model.head.bias.data.add_(1)


@fails("input_and_model_are_unchanged", "caller's model was changed: modes")
class ChangesCallersMode(Good):
    def __init__(self, model, config=None, *, seed=0, train_data=None):
        super().__init__(model.eval(), config, seed=seed, train_data=train_data)


@fails("input_and_model_are_unchanged", "caller's model was changed: requires_grad")
class FreezesCallersModel(Good):
    def __init__(self, model, config=None, *, seed=0, train_data=None):
        super().__init__(model.requires_grad_(False), config, seed=seed, train_data=train_data)


@fails("seed_determines_result", "depend on the global random state")
class ResultDependsOnGlobalRng(Good):
    def update(self, images, plan):
        return super().update((images + 0.1 * torch.rand_like(images)).clamp(0, 1), plan)


@fails("global_rng_is_untouched", "random state of torch was changed")
class UsesTorchRng(ResultDependsOnGlobalRng):
    pass


@fails("global_rng_is_untouched", "random state of torch was changed")
class SeedsTorchRng(Good):
    def setup(self, train_data):
        super().setup(train_data)
        torch.manual_seed(self.seed)


@fails("global_rng_is_untouched", "random state of numpy, random was changed")
class UsesGlobalRng(Good):
    def update(self, images, plan):
        np.random.rand()
        random.random()
        return super().update(images, plan)


@fails("updates_only_declared_parameters", r"norm1\.running_mean.* changed")
class UpdatesRunningStats(Good):
    def configure(self, model):
        super().configure(model)
        for layer in model.modules():
            layer.track_running_stats = True


@fails("updates_only_declared_parameters", "no running statistic changed")
class DeclaresRunningStats(Good):
    updates_running_stats = True


@fails("updates_only_declared_parameters", "head.bias changed")
class UpdatesHead(Good):
    def update(self, images, plan):
        self.model.head.bias.data.add_(0.1)
        return super().update(images, plan)


@fails("updates_only_declared_parameters", "adapts is 'nothing', but")
class DeclaresNothing(Good):
    adapts = "nothing"


@fails("updates_only_declared_parameters", "but no parameter changed in ten steps")
class ZeroLearningRate(Good):
    class Config(Settings):
        learning_rate: float = 0.0


@fails("updates_only_declared_parameters", "but no parameter requires grad")
class NothingTrainable(Adapter):
    name, title, adapts = "nothing-trainable", "Nothing trainable", "everything"

    def update(self, images, plan):
        return StepOutput(self.model(images))


@fails("predict_has_no_side_effects", "changed state.saved")
class UpdatesInPredict(Good):
    def predict(self, images):
        return self(images)


@fails("predict_has_no_side_effects", "generators.generator")
class DrawsInPredict(Good):
    def predict(self, images):
        torch.rand((), generator=self.generator)
        return super().predict(images)


@fails("predict_has_no_side_effects", "different logits the second time")
class RandomPredictions(Good):
    def predict(self, images):
        return super().predict(images) + torch.rand(())


@fails("leaves_no_gradients", "left a gradient on the adapter's model")
class LeavesGradients(Good):
    def update(self, images, plan):
        self.optimizer.zero_grad(set_to_none=True)
        output = super().update(images, plan)
        entropy(self.model(images)).backward()
        return output


CALLS = itertools.count()


@fails("run_is_reproducible", r"differ in .*facts\.calls")
class CountsAllCalls(Good):
    def update(self, images, plan):
        return StepOutput(super().update(images, plan).logits, {"calls": next(CALLS)})
