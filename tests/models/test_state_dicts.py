"""State dicts of files are found below wrappers and prefixes, and loaded only if they fit."""

import pytest
import torch
from torch import nn

from driftlaw.errors import DataError
from driftlaw.models.state_dicts import load_tensors, read_tensors, strip_prefix


def network():
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 4))


def prefixed(prefix, model):
    return {f"{prefix}{name}": value for name, value in model.state_dict().items()}


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model_state_dict", "model", "net"])
def test_state_dict_is_found_below_common_wrappers(tmp_path, wrapper):
    path, state = tmp_path / "file.pt", dict(network().state_dict())
    torch.save(state if wrapper is None else {"epoch": 1, wrapper: state}, path)
    assert list(read_tensors(path)[0]) == list(state)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module.model.", "backbone."])
def test_prefix_of_a_wrapper_is_removed(prefix):
    model = network()
    assert list(strip_prefix(prefixed(prefix, model), model)) == list(model.state_dict())


def test_tensors_outside_the_prefix_are_left_out():
    model = network()
    tensors = prefixed("model.", model) | {"criterion.weight": torch.ones(4)}
    assert "criterion.weight" not in strip_prefix(tensors, model)


def test_two_networks_in_one_file_are_not_guessed():
    model = network()
    tensors = prefixed("student.", model) | prefixed("teacher.", model)
    assert strip_prefix(tensors, model) == tensors
    with pytest.raises(DataError, match=r"student\.0\.weight: expected nothing, found \(2, 3, 3, 3\)"):
        load_tensors(network(), {**tensors, **prefixed("", model)}, "both:")


def test_tensors_that_do_not_fit_are_listed_and_the_model_is_unchanged():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    wrong = {f"layer{index}": torch.ones(1) for index in range(9)}
    with pytest.raises(
        DataError, match=r"file\.pt does not fit:\n  - 0\.weight: expected \(2, 3, 3, 3\), found nothing"
    ) as caught:
        load_tensors(model, wrong | {"3.bias": torch.ones(4)}, "file.pt does not fit:")
    assert "\n  - and 4 more that are missing\n  - layer0: expected nothing, found (1,)\n" in str(caught.value)
    assert str(caught.value).endswith("\n  - and 6 more that are not expected")
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_only_batch_counts_may_be_missing():
    model, tensors = network(), prefixed("", network())
    del tensors["1.num_batches_tracked"]
    load_tensors(model, tensors, "fits:")
    assert torch.equal(model[0].weight, tensors["0.weight"])
