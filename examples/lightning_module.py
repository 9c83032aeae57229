"""Adapt a LightningModule during trainer.test, without changes to the module."""

import torch
from torch.utils.data import DataLoader, TensorDataset

import driftlaw
from driftlaw.datasets import load_dataset
from driftlaw.lightning import AdaptWhileTesting

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl


class Classifier(pl.LightningModule):
    """Your module."""

    def __init__(self):
        super().__init__()
        self.network = driftlaw.load_model("wrn_16_1-cifar10")

    def test_step(self, batch, index):
        """Log the error of a batch."""
        images, labels = batch
        self.log("error", (self.network(images).argmax(1) != labels).float().mean(), on_step=False, on_epoch=True)


dataset = load_dataset("cifar10-embedded")
images = torch.from_numpy(dataset.images(range(400))).permute(0, 3, 1, 2)
images = driftlaw.corrupt(images, "fog", severity=5).float() / 255
loader = DataLoader(TensorDataset(images, torch.from_numpy(dataset.labels[:400])), batch_size=100)

quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
for callbacks in ([], [AdaptWhileTesting("law")]):
    (metrics,) = pl.Trainer(callbacks=callbacks, **quiet).test(Classifier(), loader, verbose=False)
    print("LAW:" if callbacks else "no adaptation:", f"{100 * metrics['error']:.1f} % wrong in fog")
