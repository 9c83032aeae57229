"""Registration of methods, and state that methods declare."""

import pytest
import torch

from driftlaw.base import (
    Adapter,
    StepOutput,
    make_adapter,
    registered_methods,
)
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import make_images
from tests.base.models import small_model
from tests.testing.broken_methods import Good


@pytest.fixture
def registry():
    return registered_methods()


def test_a_named_class_is_registered(registry):
    class Mine(Good, name="mine"):
        pass

    assert registry["mine"] is Mine
    made = make_adapter("mine", small_model(), {"learning_rate": 0.5}, seed=4)
    assert isinstance(made, Mine)
    assert (made.config.learning_rate, made.seed) == (0.5, 4)


def test_the_title_defaults_to_the_name(registry):
    class Mine(Adapter, name="mine"):
        def update(self, images, plan):
            return StepOutput(self.model(images))

    assert Mine.title == "mine"


def test_unknown_methods_and_settings_suggest_a_similar_name(registry):
    class Mine(Good, name="mine"):
        pass

    with pytest.raises(UsageError, match="Did you mean 'mine'"):
        make_adapter("mane", small_model(), {})
    with pytest.raises(UsageError, match=r"Invalid settings for method mine:\n.*Did you mean 'learning_rate'"):
        make_adapter("mine", small_model(), {"learnin_rate": 1})


def test_a_method_that_needs_train_data_says_so():
    class NeedsTrainData(Good):
        needs_train_data = True

    with pytest.raises(UsageError, match=r"needs the training data\. Pass it as train_data="):
        NeedsTrainData(small_model())
    NeedsTrainData(small_model(), train_data=[])


def test_a_class_without_update_is_abstract():
    class NoUpdate(Adapter):
        name = "idle"

    with pytest.raises(TypeError, match="update"):
        NoUpdate(small_model())


def test_added_state_is_saved_reset_and_has_a_reduction():
    class Counts(Good):
        def setup(self, train_data):
            super().setup(train_data)
            self.add_state("seen", torch.zeros(()), reduce="sum")
            self.add_parameter_state("first", "second")

        def update(self, images, plan):
            self.seen += len(images)
            return super().update(images, plan)

    adapter = Counts(small_model())
    adapter(make_images())
    assert adapter.state_dict()["seen"] == len(make_images())
    assert adapter._reductions["seen"] == "sum"
    shapes = [value.shape for value in adapter.trainable_parameters()]
    assert [value.shape for value in adapter.parameter_state("second")] == shapes
    assert adapter.parameter_state("third") == []
    adapter.reset()
    assert adapter.seen == 0
