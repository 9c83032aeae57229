"""Short descriptions of adapters."""

import driftlaw
from driftlaw.testing.fixtures import make_images, tiny_model


def test_repr_is_one_line_with_what_is_adapted_and_how():
    adapter = driftlaw.adapt(tiny_model(), "tent", lr=0.01, statistics="window", window=16, mean="imagenet")
    adapter((make_images() * 255).byte())
    assert repr(adapter) == (
        "Tent(WideResNet, 480 of 77,460 parameters adapted, mean='imagenet', statistics='window', window=16, "
        "learning_rate=0.01, steps=1)"
    )


def test_repr_of_a_method_without_settings():
    assert repr(driftlaw.adapt(tiny_model(), "source")) == "Source(WideResNet, 0 of 77,460 parameters adapted, steps=0)"
