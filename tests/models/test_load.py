"""Loading and saving weights."""

import argparse
import json
import os
import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import driftlaw
from driftlaw.errors import DataError, UsageError
from driftlaw.models import build_model, list_weights, load_model, save_model, weights_sha256

IMAGES = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
ODD = {"mean": [0.49139968, 0.48215841, 0.44653091], "std": [0.24703223, 0.24348513, 0.26158784]}


def network(name="wrn_10_1", classes=10, normalize=None):
    """Return a model with non-trivial BatchNorm statistics."""
    torch.manual_seed(0)
    model = build_model(name, num_classes=classes, normalize=normalize)
    with torch.no_grad():
        for value in [*model.parameters(), *(b for key, b in model.named_buffers() if "running" in key)]:
            if value.dim() == 1:
                value.uniform_(0.5, 1.5)
    return model.eval()


def robustbench_names(model):
    """Return the weights with the names of RobustBench's Wide ResNets, written out part by part."""
    found = {"conv1.weight": model.conv.weight, "fc.weight": model.head.weight, "fc.bias": model.head.bias}
    norms = {"bn1": model.norm}
    for number, stage in enumerate(model.stages, start=1):
        for index, block in enumerate(stage):
            prefix = f"block{number}.layer.{index}"
            norms |= {f"{prefix}.bn1": block.norm1, f"{prefix}.bn2": block.norm2}
            found[f"{prefix}.conv1.weight"] = block.conv1.weight
            found[f"{prefix}.conv2.weight"] = block.conv2.weight
            if block.shortcut is not None:
                found[f"{prefix}.convShortcut.weight"] = block.shortcut.weight
    for name, norm in norms.items():
        for part in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
            found[f"{name}.{part}"] = getattr(norm, part)
    return {name: value.detach().clone() for name, value in found.items()}


def same_bits(one, two):
    own, other = one.state_dict(), two.state_dict()
    return own.keys() == other.keys() and all(torch.equal(own[name], other[name]) for name in own)


@pytest.mark.parametrize("normalize", [None, ODD])
def test_saved_model_is_loaded_bit_equal(tmp_path, normalize):
    model = network("wrn_16_2", 7, normalize)
    save_model(model, tmp_path / "net.safetensors", metadata={"dataset": "cifar10", "accuracy": 12.5})
    again = load_model(tmp_path / "net.safetensors")
    assert same_bits(again, model)
    assert torch.equal(again(IMAGES), model(IMAGES))
    assert weights_sha256(again) == weights_sha256(model)
    assert not again.training
    assert again.info == model.info | {"dataset": "cifar10", "accuracy": 12.5, "weights": "net"}


def test_file_contains_metadata(tmp_path):
    save_model(network(), tmp_path / "net.safetensors", metadata={"dataset": "cifar10"})
    with safe_open(tmp_path / "net.safetensors", framework="pt") as file:
        metadata = json.loads(file.metadata()["driftlaw"])
    assert metadata["name"] == "wrn_10_1"
    assert metadata["num_classes"] == 10
    assert metadata["dataset"] == "cifar10"


def test_memory_format_does_not_change_the_file(tmp_path):
    model = network()
    save_model(model, tmp_path / "a.safetensors")
    save_model(model.to(memory_format=torch.channels_last), tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_hash_depends_on_values_dtypes_and_buffers_only():
    model = network()
    before = weights_sha256(model)
    assert weights_sha256(network()) == before
    assert weights_sha256(network().to(memory_format=torch.channels_last)) == before
    assert weights_sha256(network().double()) != before
    model.norm.running_mean[0] += 1e-3
    assert weights_sha256(model) != before


def test_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.safetensors"
    save_model(network(), path)
    before = path.read_bytes()

    def fail(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("driftlaw.models.load.save_file", fail)
    with pytest.raises(DataError, match="No space left"):
        save_model(network(classes=3), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["net.safetensors"]


@pytest.mark.parametrize("name", ["wrn_10_1", "wrn_16_2"])
@pytest.mark.parametrize("prefix", ["", "module.", "model.", "module.model."])
@pytest.mark.parametrize("wrapper", [None, "state_dict"])
def test_robustbench_checkpoints_give_the_same_logits(tmp_path, name, prefix, wrapper):
    model = network(name, 6)
    content = {prefix + key: value for key, value in robustbench_names(model).items()}
    torch.save({wrapper: content, "epoch": 3} if wrapper else content, tmp_path / "Standard.pt")
    again = load_model(tmp_path / "Standard.pt")
    assert torch.equal(again(IMAGES), model(IMAGES))
    assert same_bits(again, model)
    assert again.info["name"] == name
    assert again.info["num_classes"] == 6
    assert again.info["weights"] == "Standard"


def test_normalization_in_a_checkpoint_becomes_the_first_layer(tmp_path):
    model = network(normalize=ODD)
    numbers = {key: torch.tensor(ODD[own]).view(1, 3, 1, 1) for key, own in (("mu", "mean"), ("sigma", "std"))}
    torch.save(robustbench_names(model) | numbers, tmp_path / "normed.pt")
    assert torch.equal(load_model(tmp_path / "normed.pt")(IMAGES), model(IMAGES))


def test_checkpoints_without_num_batches_tracked_load(tmp_path):
    model = network()
    names = {key: value for key, value in robustbench_names(model).items() if "num_batches" not in key}
    torch.save(names, tmp_path / "old.pt")
    assert torch.equal(load_model(tmp_path / "old.pt")(IMAGES), model(IMAGES))


def test_robustbench_names_in_a_safetensors_file(tmp_path):
    model = network()
    save_file(robustbench_names(model), tmp_path / "other.safetensors")
    assert torch.equal(load_model(tmp_path / "other.safetensors")(IMAGES), model(IMAGES))


def test_driftlaw_names_in_a_torch_checkpoint(tmp_path):
    model = network("wrn_16_2")
    torch.save({"model": model.state_dict()}, tmp_path / "own.pth")
    assert same_bits(load_model(tmp_path / "own.pth"), model)


class Trap:
    """A pickle that would write a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_checkpoint_that_runs_code_raises_without_running_it(tmp_path):
    torch.save({"state_dict": Trap(tmp_path / "trapped")}, tmp_path / "trap.pt")
    with pytest.raises(DataError, match=r"trap\.pt contains Python objects") as caught:
        load_model(tmp_path / "trap.pt")
    assert not (tmp_path / "trapped").exists()
    assert "\n" not in str(caught.value)


def test_pickled_module_raises(tmp_path):
    torch.save(network(), tmp_path / "net.pt")
    with pytest.raises(DataError, match="contains Python objects"):
        load_model(tmp_path / "net.pt")


@pytest.mark.parametrize("content", [[1, 2], {"state_dict": {"epoch": 3}}, {"a": "b"}, torch.zeros(2)])
def test_checkpoint_without_a_state_dict_raises(tmp_path, content):
    torch.save(content, tmp_path / "odd.pt")
    with pytest.raises(DataError, match=r"odd\.pt contains no state dict"):
        load_model(tmp_path / "odd.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 5}, "name = 5: Input should be a valid string"),
        ({"num_classes": "10"}, "num_classes = '10': Input should be a valid integer"),
        ({"num_classes": True}, "num_classes = True"),
        ({"num_classes": -1}, "num_classes = -1: Input should be greater than 0"),
        ({"normalise": 5}, "normalise.str = 5"),
        ({"normalise": {"mean": ["a"] * 3}}, "expected three numbers"),
        ({"normalise": {"mean": [float("nan")] * 3}}, "expected three numbers"),
        ({"normalise": {"std": [float("inf")] * 3}}, "expected three numbers"),
        ({"normalise": {"scale": "x"}}, "scale is 'x', expected a number above 0"),
        ({"normalise": {"order": 5}}, "Unknown channel order '5'"),
    ],
)
def test_wrong_types_in_the_metadata_raise(tmp_path, change, message):
    save_model(network(), tmp_path / "net.safetensors", metadata=change)
    with pytest.raises((DataError, UsageError), match=message):
        load_model(tmp_path / "net.safetensors")


@pytest.mark.parametrize("text", ["", "5", "null", "[]", "{", "{}", "[" * 100_000, "1" * 5000], ids=range(8))
def test_metadata_that_is_no_json_object_raises(tmp_path, text):
    save_file(dict(network().state_dict()), tmp_path / "net.safetensors", metadata={"driftlaw": text})
    with pytest.raises(DataError, match=r"(not valid JSON|has invalid metadata)"):
        load_model(tmp_path / "net.safetensors")


@pytest.mark.parametrize(
    ("dtype", "kind"), [(torch.int64, "integers"), (torch.bool, "integers"), (torch.complex64, "complex numbers")]
)
def test_weights_that_are_not_floating_point_raise(tmp_path, dtype, kind):
    model = network()
    tensors = {name: value.to(dtype) for name, value in model.state_dict().items()}
    header = {"driftlaw": json.dumps(model.info)}
    save_file(tensors, tmp_path / "net.safetensors", metadata=header)
    with pytest.raises(DataError, match=rf"conv\.weight: expected \(16, 3, 3, 3\), found .* of {kind}"):
        load_model(tmp_path / "net.safetensors")


@pytest.mark.parametrize("name", [3, None, ["wrn_16_1-cifar10"]])
def test_a_model_is_named_by_text_or_path(name):
    with pytest.raises(UsageError, match="Expected the name or path of a model"):
        load_model(name)


def test_unknown_architecture_raises(tmp_path):
    torch.save({"layer1.0.conv1.weight": torch.zeros(2)}, tmp_path / "resnet.pt")
    with pytest.raises(DataError, match=r"not of a known architecture \(first names: layer1\.0\.conv1\.weight\)"):
        load_model(tmp_path / "resnet.pt")


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("kept", [0, 5, 2000, -10])
def test_truncated_file_raises(tmp_path, suffix, kept):
    path = tmp_path / f"net{suffix}"
    model = network()
    save_model(model, path) if suffix == ".safetensors" else torch.save(robustbench_names(model), path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=re.escape(str(path))):
        load_model(path)


def test_html_page_raises(tmp_path):
    for name in ("page.safetensors", "page.pt"):
        (tmp_path / name).write_text("<html><body>Too many requests</body></html>")
        with pytest.raises(DataError, match=name):
            load_model(tmp_path / name)


def test_shape_mismatches_are_listed(tmp_path):
    model = network()
    broken = robustbench_names(model)
    broken["block2.layer.0.conv2.weight"] = torch.zeros(3, 3)
    del broken["block3.layer.0.bn2.bias"]
    broken["extra.weight"] = torch.zeros(1)
    torch.save(broken, tmp_path / "broken.pt")
    with pytest.raises(DataError) as caught:
        load_model(tmp_path / "broken.pt")
    message = str(caught.value)
    assert "does not fit wrn_10_1" in message
    assert "stages.1.0.conv2.weight: expected (32, 32, 3, 3), found (3, 3)" in message
    assert "stages.2.0.norm2.bias: expected (64,), found nothing" in message
    assert "extra.weight: expected nothing, found (1,)" in message


def test_other_number_of_classes_raises(tmp_path):
    save_model(network(classes=10), tmp_path / "net.safetensors")
    assert load_model(tmp_path / "net.safetensors", num_classes=10).info["num_classes"] == 10
    with pytest.raises(UsageError, match=r"net\.safetensors has 10 classes, but num_classes=100"):
        load_model(tmp_path / "net.safetensors", num_classes=100)


def test_weights_in_the_data_directory_are_found_by_name(tmp_path):
    model = network()
    save_model(model, tmp_path / "weights" / "wrn_10_1-mine.safetensors")
    assert "wrn_10_1-mine" in list_weights(tmp_path)
    assert same_bits(load_model("wrn_10_1-mine", folder=tmp_path), model)
    with pytest.raises(UsageError, match=r"There is no file or model 'wrn_10_1-mime'\. Did you mean 'wrn_10_1-mine'"):
        load_model("wrn_10_1-mime", folder=tmp_path)


def test_environment_variable_sets_the_data_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_DATA", str(tmp_path))
    save_model(network(), tmp_path / "weights" / "mine.safetensors")
    assert load_model("mine").info["name"] == "wrn_10_1"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("wrn_28_10", "--dataset cifar10 --model wrn_28_10"),
        (
            "wrn_40_2-cifar100",
            "--dataset cifar100 --model wrn_40_2 --set augmentation=augmix --set normalise=half",
        ),
        (
            "wrn_28_10-longer",
            "--dataset cifar10 --model wrn_28_10 --out .*/wrn_28_10-longer.safetensors",
        ),
        (
            "wrn_40_2-cifar100-200epochs.safetensors",
            "--dataset cifar100 --model wrn_40_2 .*=augmix .* --out .*-200epochs.safetensors",
        ),
    ],
)
def test_missing_weights_raise_with_the_training_command(tmp_path, name, command):
    advice = (
        f"Pass the path of a file, or in a checkout of driftlaw train them with `python -m benchmarks train {command}`"
    )
    with pytest.raises(UsageError, match=f"The weights '{name}' are not in .*weights. {advice}"):
        load_model(name, folder=tmp_path)


def test_missing_path_raises(tmp_path):
    with pytest.raises(UsageError, match=r"no file or model '.*none\.safetensors'"):
        load_model(tmp_path / "none.safetensors", folder=tmp_path)
    with pytest.raises(UsageError, match="There is no file or model"):
        load_model(tmp_path, folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "message"), [("resnet50", "torchvision:NAME"), ("resnet50_keras-mine", "resnet50-imagenet")]
)
def test_missing_weights_of_large_models_raise_with_alternatives(tmp_path, name, message):
    with pytest.raises(UsageError, match=f"The weights '{name}' are not in .*{message}"):
        load_model(name, folder=tmp_path)


def save(path, tensors, **more):
    torch.save({"state_dict": tensors} | more, path)
    return path


def ttt_plus_plus_names(model):
    """Return the weights as TTT++ saves them: an encoder, a classifier, and a projection head."""
    found = {
        f"encoder.{name.replace('downsample', 'shortcut')}": value
        for name, value in model.state_dict().items()
        if not name.startswith("fc.")
    }
    found |= {"fc.weight": model.fc.weight.detach(), "fc.bias": model.fc.bias.detach()}
    return found | {"head.0.weight": torch.zeros(2048, 8), "head.2.bias": torch.zeros(128)}


def test_augmix_resnext_loads(tmp_path):
    model = network("resnext_11_2x8", 6, "half")
    tensors = {f"module.{name}": value for name, value in model.state_dict().items()}
    for path in (tmp_path / "checkpoint.pth.tar", tmp_path / "Hendrycks2020AugMix_ResNeXt.pt"):
        again = load_model(save(path, tensors))
        assert again.info["name"] == "resnext_11_2x8"
        assert torch.equal(again(IMAGES), model(IMAGES))
        assert torch.equal(load_model(path, architecture="resnext_11_2x8", normalize="half")(IMAGES), model(IMAGES))


def test_ttt_plus_plus_resnet_loads(tmp_path):
    model = network("resnet14_cifar", 6, "cifar10")
    torch.save({"opt": argparse.Namespace(lr=0.1), "model": ttt_plus_plus_names(model)}, tmp_path / "ckpt.pth")
    again = load_model(tmp_path / "ckpt.pth", num_classes=6)
    assert again.info["name"] == "resnet14_cifar"
    assert torch.equal(again(IMAGES), model(IMAGES))
    adapted = {
        re.sub("^encoder", "ext", re.sub("^fc", "head.fc", key)): value
        for key, value in ttt_plus_plus_names(model).items()
        if not re.match(r"head\.", key)
    }
    torch.save({"net": adapted, "head": {"0.weight": torch.zeros(2)}}, tmp_path / "fog_both.pth")
    assert torch.equal(load_model(tmp_path / "fog_both.pth")(IMAGES), model(IMAGES))


@pytest.mark.parametrize("name", ["resnet14", "resnext14_4x8d"])
def test_torchvision_state_dict_loads(tmp_path, name):
    model = network(name, 6, "imagenet")
    torch.save(model.state_dict(), tmp_path / f"{name}.pth")
    again = load_model(tmp_path / f"{name}.pth")
    assert again.info["name"] == name
    assert torch.equal(again(IMAGES), model(IMAGES))


def test_robustbench_augmix_wide_resnet_has_its_published_normalization(tmp_path):
    model = network("wrn_40_2", 4, "half")
    path = tmp_path / "Hendrycks2020AugMix_WRN.pt"
    torch.save(robustbench_names(model), path)
    assert torch.equal(load_model(path)(IMAGES), model(IMAGES))
    with pytest.raises(UsageError, match=r"trained with .* 'half' .*its file name.*Requested was 'none'"):
        load_model(path, normalize="none")


def test_ambiguous_architecture_needs_a_normalization(tmp_path):
    model = network("wrn_40_2", 4, "half")
    torch.save(robustbench_names(model), tmp_path / "mine.pt")
    with pytest.raises(UsageError, match=r"mine\.pt does not state .*Pass normalize=.*half"):
        load_model(tmp_path / "mine.pt")
    assert torch.equal(load_model(tmp_path / "mine.pt", normalize="half")(IMAGES), model(IMAGES))


def test_requested_normalization_is_used_if_none_is_stated(tmp_path):
    model = network(normalize=ODD)
    torch.save(robustbench_names(model), tmp_path / "bare.pt")
    again = load_model(tmp_path / "bare.pt", normalize=ODD)
    assert torch.equal(again(IMAGES), model(IMAGES))
    assert again.info["normalise"] == model.info["normalise"]


@pytest.mark.parametrize("form", ["metadata", "buffers"])
def test_normalization_that_differs_from_the_stated_one_raises(tmp_path, form):
    model = network(normalize=ODD)
    if form == "metadata":
        save_model(model, path := tmp_path / "net.safetensors")
    else:
        numbers = {key: torch.tensor(ODD[own]) for key, own in (("mu", "mean"), ("sigma", "std"))}
        torch.save(robustbench_names(model) | numbers, path := tmp_path / "net.pt")
    assert same_bits(load_model(path, normalize={key: [round(n, 5) for n in ODD[key]] for key in ODD}), model)
    origin = "its metadata" if form == "metadata" else "its tensors mean and std"
    with pytest.raises(
        UsageError, match=rf"trained with .*mean=\[0\.491.*as stated in {origin}\. Requested was 'half'"
    ):
        load_model(path, normalize="half")


def test_augmix_checkpoint_is_known_by_its_fields(tmp_path):
    model = network("wrn_40_2", 4, "half")
    path = save(tmp_path / "best.pth.tar", robustbench_names(model), best_acc=0.9, dataset="cifar10", model="wrn")
    assert torch.equal(load_model(path)(IMAGES), model(IMAGES))
    with pytest.raises(UsageError, match="written by AugMix's training code"):
        load_model(path, normalize="cifar10")


def test_wrong_architecture_or_normalization_raises(tmp_path):
    torch.save(robustbench_names(network()), tmp_path / "net.pt")
    with pytest.raises(DataError, match="does not fit wrn_16_1"):
        load_model(tmp_path / "net.pt", architecture="wrn_16_1")
    save_model(network(), tmp_path / "net.safetensors")
    with pytest.raises(UsageError, match="is a wrn_10_1, but architecture='wrn_16_1'"):
        load_model(tmp_path / "net.safetensors", architecture="wrn_16_1")
    with pytest.raises(UsageError, match=r"Unknown normalisation 'halve'\. Did you mean 'half'"):
        load_model(tmp_path / "net.pt", normalize="halve")


def test_saved_weights_can_be_read_by_others(tmp_path):
    mask = os.umask(0)
    os.umask(mask)
    save_model(network(), tmp_path / "net.safetensors")
    assert (tmp_path / "net.safetensors").stat().st_mode & 0o777 == 0o666 & ~mask


def test_driftlaw_load_model_accepts_the_same_keywords(tmp_path):
    model = network("resnext_11_2x8", 6, "half")
    torch.save(model.state_dict(), tmp_path / "x.pt")
    again = driftlaw.load_model(tmp_path / "x.pt", architecture="resnext_11_2x8", normalize="half", num_classes=6)
    assert same_bits(again, model)


@pytest.mark.parametrize(("key", "value"), [("name", "wrn_6000004_1"), ("num_classes", 10**9)])
def test_file_that_names_a_huge_model_is_refused(tmp_path, key, value):
    path = tmp_path / "a.safetensors"
    info = {"name": "wrn_10_1", "num_classes": 10, "normalise": ODD} | {key: value}
    save_file({"conv.weight": torch.zeros(16, 3, 3, 3)}, path, metadata={"driftlaw": json.dumps(info)})
    with pytest.raises(UsageError, match="is too large"):
        load_model(path)


def test_checkpoint_with_a_huge_block_number_is_refused(tmp_path):
    tensors = {"head.weight": torch.zeros(10, 64), "stages.0.999999.conv1.weight": torch.zeros(16, 16, 3, 3)}
    tensors |= {"stages.0.0.conv1.weight": torch.zeros(16, 16, 3, 3)}
    torch.save(tensors, tmp_path / "a.pt")
    with pytest.raises(UsageError, match="'wrn_6000004_1' with 10 classes is too large"):
        load_model(tmp_path / "a.pt", normalize="half")


def test_pipe_among_the_weights_is_refused(tmp_path):
    (tmp_path / "weights").mkdir()
    os.mkfifo(tmp_path / "weights" / "a.safetensors")
    with pytest.raises(DataError, match=r"a\.safetensors is not a regular file"):
        load_model("a", folder=tmp_path)


def test_weights_of_a_clone_are_found_by_name(tmp_path, monkeypatch):
    model = network().to(torch.bfloat16)
    clone, data = tmp_path / "clone", tmp_path / "data"
    save_model(model, clone / "weights" / "wrn_10_1-cifar10.safetensors")
    monkeypatch.setattr("driftlaw.models.load.CLONE", clone)
    assert "wrn_10_1-cifar10" not in list_weights(data)  # not a clone, but some folder beside an installed package
    (clone / "pyproject.toml").touch()
    assert list_weights(data)["wrn_10_1-cifar10"].parent == clone / "weights"
    found = load_model("wrn_10_1-cifar10", folder=data)
    assert {value.dtype for value in found.parameters()} == {torch.float32}
    assert same_bits(found, model.float())
    save_model(model, data / "weights" / "wrn_10_1-cifar10.safetensors")
    assert list_weights(data)["wrn_10_1-cifar10"].parent == data / "weights"


def test_a_data_directory_with_a_name_that_is_too_long_has_no_weights():
    assert "wrn_16_1-cifar10" in list_weights("x" * 300)


def test_the_architecture_may_be_a_path(tmp_path):
    path = tmp_path / "net.pth"
    torch.save(build_model("wrn_10_1", num_classes=3).state_dict(), path)
    with pytest.raises(DataError, match="does not fit wrn_16_1"):
        load_model(path, architecture=Path("wrn_16_1"))
