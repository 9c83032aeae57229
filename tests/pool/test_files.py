from __future__ import annotations

import errno
import os
import pickle

import pytest
import torch

import driftlaw
from driftlaw.errors import DataError, UsageError
from driftlaw.testing.fixtures import make_images, tiny_model

NAMES = ("camera 7", "../../etc/passwd", "Ä", "a", "A", "x" * 200)


def make_pool(folder, method="tent", **settings):
    return driftlaw.AdapterPool(tiny_model(), method, **{"memory": 0, "host_memory": 0, "folder": folder} | settings)


def use_all(pool, number):
    return [pool(make_images(number), stream=name) for name in NAMES]


def test_new_pool_continues_where_the_old_one_was_saved(tmp_path):
    adapter = driftlaw.adapt(tiny_model(), "tent")
    pool = make_pool(tmp_path / "new" / "folder", memory="1 MB")
    for number in range(2):
        expected = adapter(make_images(number))
        assert all(torch.equal(logits, expected) for logits in use_all(pool, number))
    pool.save()
    pool = make_pool(tmp_path / "new" / "folder")
    assert set(pool.streams()) == set(NAMES)
    expected = adapter(make_images(2))
    assert all(torch.equal(logits, expected) for logits in use_all(pool, 2))


def test_files_stay_in_the_folder_and_differ_without_regard_to_case(tmp_path):
    folder = tmp_path / "pool"
    pool = make_pool(folder)
    use_all(pool, 0)
    pool.save()
    assert [path.name for path in tmp_path.iterdir()] == ["pool"]
    names = [path.name for path in folder.glob("stream-*.pt")]
    assert len({name.lower() for name in names}) == len(NAMES)


def test_pool_continues_from_the_last_saved_states_after_a_kill(tmp_path):
    adapter, killed = driftlaw.adapt(tiny_model(), "tent"), make_pool(tmp_path)
    adapter(make_images(0))
    killed(make_images(0), stream="a")
    killed.save()
    killed(make_images(1), stream="a")
    (tmp_path / ".stream-a.abcdefgh.part.pt").write_bytes(b"half a file")
    pool = make_pool(tmp_path)
    assert torch.equal(pool(make_images(5), stream="a"), adapter(make_images(5)))
    assert not list(tmp_path.glob(".stream*"))


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "gone", "pickle", "other stream", "other content"])
def test_damaged_file_is_an_error_and_other_streams_work(tmp_path, damage):
    pool, adapter = make_pool(tmp_path), driftlaw.adapt(tiny_model(), "tent")
    for stream in "abc":
        pool(make_images(0), stream=stream)
    adapter(make_images(0))
    path = tmp_path / "stream-a.pt"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle] ^= 1
    contents = {"cut": bytes(content[:middle]), "bit": bytes(content), "empty": b""}
    contents["pickle"] = pickle.dumps({"text": print}, protocol=2)
    if damage in contents:
        path.write_bytes(contents[damage])
    elif damage == "gone":
        path.unlink()
    elif damage == "other stream":
        path.write_bytes((tmp_path / "stream-b.pt").read_bytes())
    else:
        torch.save([1, 2], path)
    with pytest.raises(DataError, match=r"stream 'a' cannot be read.*pool\.reset\('a'\)"):
        pool(make_images(1), stream="a")
    expected = adapter(make_images(1))
    for stream in "cb":
        assert torch.equal(pool(make_images(1), stream=stream), expected)
    pool.reset("a")
    assert torch.equal(pool(make_images(7), stream="a"), driftlaw.adapt(tiny_model(), "tent")(make_images(7)))


def test_full_disk_is_an_error_that_loses_nothing(tmp_path, monkeypatch):
    pool = make_pool(tmp_path)
    adapters = {stream: driftlaw.adapt(tiny_model(), "tent") for stream in "ab"}
    for number in range(2):
        for stream, adapter in adapters.items():
            assert torch.equal(pool(make_images(number), stream=stream), adapter(make_images(number)))

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(DataError, match="No space left"):
            pool(make_images(2), stream="a")
        with pytest.raises(DataError, match="No space left"):
            pool.save()
        assert torch.equal(pool(make_images(2), stream="b"), adapters["b"](make_images(2)))
    assert not list(tmp_path.glob(".stream*"))
    adapters["b"](make_images(2))
    assert torch.equal(pool(make_images(2), stream="a"), adapters["a"](make_images(2)))


def test_folder_that_cannot_be_used_is_an_error(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda *_: False)
        with pytest.raises(DataError, match="not writable"):
            make_pool(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="Cannot create directory"):
        make_pool(tmp_path / "file")
    with pytest.raises(UsageError, match="folder = 5"):
        make_pool(5)


def test_file_of_another_pool_is_refused(tmp_path):
    for seed in range(2):
        pool = make_pool(tmp_path / str(seed), seed=seed)
        pool(make_images(), stream="a")
        pool.save()
    (tmp_path / "1" / "stream-a.pt").replace(tmp_path / "0" / "stream-a.pt")
    with pytest.raises(DataError, match="setting or seed"):
        make_pool(tmp_path / "0")(make_images(), stream="a")


def test_other_files_in_the_folder_are_ignored(tmp_path):
    for name in ("stream-.pt", "stream-%ff.pt", "stream-B.pt", f"stream-{'x' * 201}.pt", "notes.txt"):
        (tmp_path / name).write_text("")
    assert make_pool(tmp_path).streams() == []


def test_reset_and_remove_delete_the_file(tmp_path):
    pool = make_pool(tmp_path)
    for stream in "abc":
        pool(make_images(), stream=stream)
    pool.reset("a")
    pool.remove("b")
    assert list(tmp_path.glob("stream-*.pt")) == []
    assert torch.equal(pool(make_images(7), stream="a"), driftlaw.adapt(tiny_model(), "tent")(make_images(7)))


def test_a_file_that_cannot_be_deleted_is_an_error_and_the_stream_stays(tmp_path, monkeypatch):
    pool = make_pool(tmp_path)
    pool(make_images(), stream="a")
    pool.save()

    def refuse(self, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", refuse)
        with pytest.raises(DataError, match="Cannot delete the state of stream 'a': Permission denied"):
            pool.remove("a")
    assert pool.streams() == ["a"]
