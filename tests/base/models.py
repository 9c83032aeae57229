"""Models and a callback for tests of adapters."""

from torch import nn


def small_model(channels=4):
    return nn.Sequential(
        nn.Conv2d(3, channels, 3), nn.BatchNorm2d(channels), nn.Flatten(), nn.Linear(channels * 196, 4)
    )


class Recorder:
    """Callback that keeps the number and the output of every step."""

    def __init__(self):
        self.steps, self.outputs, self.closed = [], [], False

    def on_step(self, adapter, output):
        self.steps.append(adapter.steps)
        self.outputs.append(output)

    def close(self):
        self.closed = True
