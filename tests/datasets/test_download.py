"""Downloading and verifying datasets."""

import hashlib
import io
import os
import socket
import tarfile

import pytest

from driftlaw.datasets.download import download_dataset, download_file, extract_files, replace_folder, verify_dataset
from driftlaw.datasets.registry import DATASETS
from driftlaw.errors import DataError, UsageError
from tests.datasets import synthetic
from tests.datasets.http_server import Site, serve

CONTENT = b"\x1f\x8b" + bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NOWHERE = "http://127.0.0.1:9/cifar-10-python.tar.gz"


@pytest.fixture
def data():
    return synthetic.splits()


def with_archive(data, tmp_path, url):
    tarball = synthetic.official_tarball(data, tmp_path)
    return synthetic.info(data, synthetic.remote(url, hashlib.sha256(tarball).hexdigest())), tarball


def test_existing_dataset_is_not_downloaded(data, tmp_path):
    folder = synthetic.write_folder(data, tmp_path)
    assert download_dataset(synthetic.info(data, synthetic.remote(NOWHERE, "")), data_dir=tmp_path) == folder


def test_official_archive_is_downloaded_verified_and_unpacked(data, tmp_path):
    tarball = synthetic.official_tarball(data, tmp_path)
    with serve(Site(tarball, break_after=20_000, breaks=1)) as url:
        info = synthetic.info(data, synthetic.remote(url, hashlib.sha256(tarball).hexdigest()))
        folder = download_dataset(info, data_dir=tmp_path / "data")
    assert sorted(os.listdir(folder)) == sorted(info.layout.all_files)
    assert os.listdir(tmp_path / "data") == ["cifar-10-batches-py"]
    assert verify_dataset(info, tmp_path / "data") == []


def test_environment_variable_selects_a_mirror(data, tmp_path, monkeypatch):
    info, tarball = with_archive(data, tmp_path, NOWHERE)
    with serve(Site(tarball)) as url:
        monkeypatch.setenv("DRIFTLAW_CIFAR10_URL", url)
        download_dataset(info, data_dir=tmp_path / "data")
    assert info.is_present(tmp_path / "data")


def test_local_archive_is_unpacked_and_kept(data, tmp_path):
    info, tarball = with_archive(data, tmp_path, NOWHERE)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "cifar-10-python.tar.gz").write_bytes(tarball)
    download_dataset(info, data_dir=folder)
    assert sorted(os.listdir(folder)) == ["cifar-10-batches-py", "cifar-10-python.tar.gz"]


def test_failed_download_says_which_file_to_put_where(data, tmp_path):
    page = b"<html>moved</html>"
    with serve(Site(page)) as url:
        info, _ = with_archive(data, tmp_path, url)
        with pytest.raises(DataError) as caught:
            download_dataset(info, data_dir=tmp_path / "data")
    message = str(caught.value)
    assert "returned an HTML page" in message
    assert f"Put cifar-10-python.tar.gz (from {url})" in message
    assert f"into {tmp_path / 'data'}" in message
    assert "DRIFTLAW_CIFAR10_URL" in message
    assert "`python -m tools.cifar_mosaics cifar10`" in message
    assert os.listdir(tmp_path / "data") == []


def test_wrong_local_archive_raises_and_is_kept(data, tmp_path):
    info, _ = with_archive(data, tmp_path, NOWHERE)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "cifar-10-python.tar.gz").write_bytes(b"mine")
    with pytest.raises(DataError, match="not the official file"):
        download_dataset(info, data_dir=folder)
    assert (folder / "cifar-10-python.tar.gz").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["cifar10-embedded", "folder:PATH"])
def test_datasets_without_download_raise(name, tmp_path):
    with pytest.raises(UsageError, match="has no download"):
        download_dataset(DATASETS[name], data_dir=tmp_path)
    with pytest.raises(UsageError, match="no published content"):
        verify_dataset(DATASETS[name], tmp_path)


def test_verify_reports_missing_damaged_and_different_splits(data, tmp_path):
    info = synthetic.info(data)
    assert [line.split(":")[0] for line in verify_dataset(info, tmp_path)] == ["cifar10 train", "cifar10 test"]
    folder = synthetic.write_folder({**data, "test": synthetic.splits(seed=1)["test"]}, tmp_path)
    (folder / "data_batch_3").write_bytes(b"")
    problems = verify_dataset(info, tmp_path)
    assert "data_batch_3 cannot be read" in problems[0]
    assert "images and labels have sha256" in problems[1]
    synthetic.write_folder(synthetic.splits(per_class=1), tmp_path)
    assert "found 50 images; expected 100" in verify_dataset(info, tmp_path)[0]


def test_file_is_downloaded_with_progress(tmp_path):
    progress = []
    with serve(Site(CONTENT)) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256, progress=lambda *sizes: progress.append(sizes))
    assert (tmp_path / "a.gz").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["a.gz"]
    assert progress[-1] == (len(CONTENT), len(CONTENT))


def test_interrupted_download_is_resumed(tmp_path):
    site = Site(CONTENT, break_after=300_000, breaks=2)
    with serve(site) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT
    assert site.requested == [None, "bytes=300000-", "bytes=600000-"]


def test_repeated_interruptions_raise_and_the_next_call_resumes(tmp_path):
    site = Site(CONTENT, break_after=100_000, breaks=3)
    with serve(site) as url:
        with pytest.raises(DataError, match=r"interrupted 3 times.*300,000 bytes were kept"):
            download_file(url, tmp_path / "a.gz", sha256=SHA256)
        assert os.listdir(tmp_path) == ["a.gz.part"]
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert site.requested[-1] == "bytes=300000-"
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_server_without_ranges_restarts_the_download(tmp_path):
    with serve(Site(CONTENT, break_after=300_000, breaks=1, ranges=False)) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_complete_part_is_used(tmp_path):
    (tmp_path / "a.gz.part").write_bytes(CONTENT)
    with serve(Site(CONTENT)) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_part_of_another_file_is_replaced(tmp_path):
    (tmp_path / "a.gz.part").write_bytes(b"another file")
    with serve(Site(CONTENT)) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_wrong_checksum_keeps_nothing(tmp_path):
    with serve(Site(CONTENT + b"!")) as url, pytest.raises(DataError, match=f"expected {SHA256}"):
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("state_length", [True, False])
def test_download_beyond_the_limit_raises_and_keeps_nothing(tmp_path, monkeypatch, state_length):
    monkeypatch.setattr("driftlaw.datasets.download.MAX_BYTES", 10_000)
    site = Site(b"x" * 1_000_000, state_length=state_length)
    with serve(site) as url, pytest.raises(DataError, match=r"more than 10,000 bytes\. Nothing was kept"):
        download_file(url, tmp_path / "a", sha256="0" * 64)
    assert os.listdir(tmp_path) == []


def test_html_page_raises_and_keeps_nothing(tmp_path):
    page = b"<!DOCTYPE html><html><body>We have moved</body></html>"
    with serve(Site(page)) as url, pytest.raises(DataError, match="returned an HTML page instead"):
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert os.listdir(tmp_path) == []


def test_empty_response_raises(tmp_path):
    with serve(Site(b"")) as url, pytest.raises(DataError, match="another kind of file instead"):
        download_file(url, tmp_path / "a.gz", sha256=SHA256)


def test_http_error_raises(tmp_path):
    with serve(Site(CONTENT, status=404)) as url, pytest.raises(DataError, match="returned 404 Not Found"):
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert os.listdir(tmp_path) == []


def test_unreachable_address_raises(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/a.gz"
        with pytest.raises(DataError, match="cannot be reached"):
            download_file(url, tmp_path / "a.gz", sha256=SHA256)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/a", "a.gz"])
def test_other_protocols_raise(tmp_path, url):
    with pytest.raises(UsageError, match="http"):
        download_file(url, tmp_path / "a.gz", sha256=SHA256)


def _tarball(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return path


def test_extract_writes_only_the_requested_files_into_the_folder(tmp_path):
    tarball = _tarball(tmp_path / "t.tgz", {"x/a": b"A", "../b": b"B", "/c": b"C", "x/d": b"D"})
    out = tmp_path / "deep" / "out"
    out.mkdir(parents=True)
    extract_files(tarball, out, {"a", "b", "c"})
    assert {name: (out / name).read_bytes() for name in os.listdir(out)} == {"a": b"A", "b": b"B", "c": b"C"}
    assert sorted(os.listdir(tmp_path)) == ["deep", "t.tgz"]


def test_links_are_not_extracted(tmp_path):
    with pytest.raises(DataError, match="does not contain link"):
        extract_files(_tarball(tmp_path / "t.tgz", {}), tmp_path, {"link"})


@pytest.mark.parametrize("keep", [10, 60])
def test_damaged_tarball_raises(tmp_path, keep):
    tarball = _tarball(tmp_path / "t.tgz", {"a": os.urandom(100_000)})
    tarball.write_bytes(tarball.read_bytes()[:-keep] if keep == 60 else tarball.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"t\.tgz"):
        extract_files(tarball, tmp_path, {"a", "z"})


def test_replace_folder_replaces_only_if_the_block_succeeds(tmp_path):
    target = tmp_path / "set"
    target.mkdir()
    (target / "old").write_text("")
    with pytest.raises(ZeroDivisionError), replace_folder(target) as new:
        (new / "half").write_text(f"half {1 / 0}")
    assert os.listdir(target) == ["old"]
    with replace_folder(target) as new:
        (new / "new").write_text("")
    assert os.listdir(target) == ["new"]
    assert os.listdir(tmp_path) == ["set"]
