"""A network of your own on the command line: driftlaw run --network own_network.py:make --methods source,law."""

import subprocess
import sys

import driftlaw


def make():
    """Return your network with its trained weights: an nn.Module that maps images in [0, 1] to logits."""
    return driftlaw.load_model("wrn_16_1-cifar10")


if __name__ == "__main__":
    options = ["--network", f"{__file__}:make", "--methods", "source,law", "--limit", "20"]
    subprocess.run([sys.executable, "-m", "driftlaw", "run", *options], check=True)
