"""A method of your own, run beside two others. `driftlaw check own_method.py` tests it."""

import driftlaw
from driftlaw.base import Adapter, BatchStatsSettings, StepOutput
from driftlaw.components.batch_norm import use_batch_stats
from driftlaw.components.losses import entropy
from driftlaw.components.optimizers import make_optimizer, minimize_step
from driftlaw.components.parameters import adapt_layers


class OwnEntropy(Adapter, name="own-entropy"):
    """Entropy minimisation over norm layers."""

    class Config(BatchStatsSettings):
        """Settings."""

        learning_rate: float = 1e-3
        """Step size."""

    def configure(self, model):
        """Adapt norm layers, with batch statistics."""
        adapt_layers(model, ["norm"])
        use_batch_stats(model, self.config.stored_stats_weight)

    def setup(self, train_data):
        """Create the optimizer."""
        self.optimizer = make_optimizer("adam", self.trainable_parameters(), self.config.learning_rate)

    def update(self, images, plan):
        """Predict, then minimise the entropy."""
        logits = self.model(images)
        minimize_step(entropy(logits), self.optimizer)
        return StepOutput(logits.detach())


if __name__ == "__main__":
    stream = driftlaw.make_stream("embedded", corruptions="fog", limit=200, batch_size=50)
    for method in ("source", "norm", OwnEntropy):
        adapter = driftlaw.adapt(driftlaw.load_model("wrn_16_1-cifar10"), method)
        print(f"{adapter.name}: {driftlaw.run(stream, adapter).mean_error:.1f} % wrong in fog")
