"""A file from a public address, which is 127.0.0.1 here."""

import hashlib
import io
import os
import socket
import tarfile

import pytest

from driftlaw.datasets.downloads import download_file, extract_files
from driftlaw.errors import DataError, UsageError
from tests.datasets.serving import Site, serve

CONTENT = b"\x1f\x8b" + bytes(range(256)) * 4000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def test_a_file_arrives_whole_and_tells_how_far_it_is(tmp_path):
    told = []
    with serve(Site(CONTENT)) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256, progress=lambda *sizes: told.append(sizes))
    assert (tmp_path / "a.gz").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["a.gz"]
    assert told[-1] == (len(CONTENT), len(CONTENT))


def test_a_broken_transfer_goes_on_where_it_stopped(tmp_path):
    site = Site(CONTENT, break_after=300_000, breaks=2)
    with serve(site) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT
    assert site.asked == [None, "bytes=300000-", "bytes=600000-"]


def test_a_transfer_that_keeps_breaking_is_told_and_the_next_call_goes_on(tmp_path):
    site = Site(CONTENT, break_after=100_000, breaks=3)
    with serve(site) as url:
        with pytest.raises(DataError, match=r"broke off 3 times.*300,000 bytes are kept"):
            download_file(url, tmp_path / "a.gz", sha256=SHA256)
        assert os.listdir(tmp_path) == ["a.gz.part"]
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert site.asked[-1] == "bytes=300000-"
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_it_all_again(tmp_path):
    with serve(Site(CONTENT, break_after=300_000, breaks=1, ranges=False)) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_a_part_that_is_whole_already_is_taken(tmp_path):
    (tmp_path / "a.gz.part").write_bytes(CONTENT)
    with serve(Site(CONTENT)) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_a_part_of_something_else_is_thrown_away_and_fetched_anew(tmp_path):
    (tmp_path / "a.gz.part").write_bytes(b"another file")
    with serve(Site(CONTENT)) as url:
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_a_wrong_checksum_leaves_nothing(tmp_path):
    with serve(Site(CONTENT + b"!")) as url, pytest.raises(DataError, match=f"expected {SHA256}"):
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert os.listdir(tmp_path) == []


def test_a_page_instead_of_the_archive_is_told_and_leaves_nothing(tmp_path):
    page = b"<!DOCTYPE html><html><body>We have moved</body></html>"
    with serve(Site(page)) as url, pytest.raises(DataError, match="sent an HTML page instead"):
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert os.listdir(tmp_path) == []


def test_an_empty_answer_is_told(tmp_path):
    with serve(Site(b"")) as url, pytest.raises(DataError, match="something else instead"):
        download_file(url, tmp_path / "a.gz", sha256=SHA256)


def test_an_error_of_the_server_is_told(tmp_path):
    with serve(Site(CONTENT, status=404)) as url, pytest.raises(DataError, match="answers 404 Not Found"):
        download_file(url, tmp_path / "a.gz", sha256=SHA256)
    assert os.listdir(tmp_path) == []


def test_an_address_that_does_not_answer_is_told(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/a.gz"
        with pytest.raises(DataError, match="cannot be reached"):
            download_file(url, tmp_path / "a.gz", sha256=SHA256)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/a", "a.gz"])
def test_only_web_addresses_are_asked(tmp_path, url):
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


def test_only_wanted_files_leave_a_tarball_and_none_leaves_its_folder(tmp_path):
    tarball = _tarball(tmp_path / "t.tgz", {"x/a": b"A", "../b": b"B", "/c": b"C", "x/d": b"D"})
    out = tmp_path / "deep" / "out"
    out.mkdir(parents=True)
    extract_files(tarball, out, {"a", "b", "c"})
    assert {name: (out / name).read_bytes() for name in os.listdir(out)} == {"a": b"A", "b": b"B", "c": b"C"}
    assert sorted(os.listdir(tmp_path)) == ["deep", "t.tgz"]


def test_a_link_is_not_taken_for_a_file(tmp_path):
    with pytest.raises(DataError, match="lacks link"):
        extract_files(_tarball(tmp_path / "t.tgz", {}), tmp_path, {"link"})


@pytest.mark.parametrize("keep", [10, 60])
def test_a_damaged_tarball_is_named(tmp_path, keep):
    tarball = _tarball(tmp_path / "t.tgz", {"a": os.urandom(100_000)})
    tarball.write_bytes(tarball.read_bytes()[:-keep] if keep == 60 else tarball.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"t\.tgz"):
        extract_files(tarball, tmp_path, {"a", "z"})
