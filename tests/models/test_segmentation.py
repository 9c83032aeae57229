"""Feature pyramid: shapes, weights of the encoder, folding of norm layers."""

import pytest
import torch

from driftlaw.errors import UsageError
from driftlaw.models import build_model, fold_batch_norm


@pytest.mark.parametrize(("name", "stride"), [("fpn_wrn_10_1", 1), ("fpn_resnet14", 4), ("fpn_resnet14_cifar", 1)])
def test_logits_have_the_size_of_the_images(name, stride):
    model = build_model(name, num_classes=4, normalize="half").eval()
    images = torch.rand(2, 3, 36, 52)
    assert model(images).shape == (2, 4, 36, 52)
    assert model.forward_features(images).shape[-2:] == (36 // stride, 52 // stride)
    assert model.info == {"name": name, "num_classes": 4, "normalise": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    with torch.no_grad():
        torch.testing.assert_close(fold_batch_norm(model)(images), model(images), atol=1e-4, rtol=1e-4)


def test_encoder_keeps_the_names_and_features_of_a_classifier():
    classifier, model = (build_model(name, num_classes=3).eval() for name in ("resnet14", "fpn_resnet14"))
    own = model.encoder.state_dict()
    assert set(classifier.state_dict()) - set(own) == {"fc.weight", "fc.bias"}
    model.encoder.load_state_dict({name: value for name, value in classifier.state_dict().items() if name in own})
    images = torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        torch.testing.assert_close(model.stages(images)[-1].mean((2, 3)), classifier.forward_features(images))


def test_other_encoders_are_refused():
    with pytest.raises(UsageError, match=r"The encoder is a ResNeXt\. Expected a ResNet or a Wide ResNet"):
        build_model("fpn_resnext_11_2x8", num_classes=3)
