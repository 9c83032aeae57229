"""tools/packages.py, with fake programs."""

import pytest

from driftlaw.errors import DataError
from tools.packages import npm_pack, pip_download


def client(folder, script):
    path = folder / "fake-client"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_package_is_packed(tmp_path):
    program = client(tmp_path, 'echo "$@" > arguments; touch some-package-1.0.0.tgz')
    assert npm_pack("some-package", "1.0.0", tmp_path, client=program) == tmp_path / "some-package-1.0.0.tgz"
    assert (tmp_path / "arguments").read_text().startswith("pack some-package@1.0.0 --ignore-scripts")


def test_missing_client_raises(tmp_path):
    with pytest.raises(DataError, match="'no-such-npm' is not on the PATH"):
        npm_pack("some-package", "1.0.0", tmp_path, client="no-such-npm")


def test_error_of_the_client_is_reported(tmp_path):
    program = client(tmp_path, "echo 'npm error code ENOTFOUND' >&2; exit 1")
    with pytest.raises(DataError, match="failed: npm error code ENOTFOUND"):
        npm_pack("some-package", "1.0.0", tmp_path, client=program)


def test_client_without_output_raises(tmp_path):
    with pytest.raises(DataError, match=r"wrote no \.tgz"):
        npm_pack("some-package", "1.0.0", tmp_path, client=client(tmp_path, "exit 0"))


def test_wheel_is_downloaded(tmp_path):
    program = client(tmp_path, 'echo "$@" > arguments; touch some_package-1.0.0-py3-none-any.whl')
    wheel = pip_download("some-package", "1.0.0", tmp_path, client=program)
    assert wheel == tmp_path / "some_package-1.0.0-py3-none-any.whl"
    assert (tmp_path / "arguments").read_text().startswith("-m pip download some-package==1.0.0 --no-deps")
    failing = client(tmp_path, "echo 'ERROR: No matching distribution found' >&2; exit 1")
    with pytest.raises(DataError, match=r"pip download some-package==1\.0\.0` failed: ERROR: No matching"):
        pip_download("some-package", "1.0.0", tmp_path, client=failing)
