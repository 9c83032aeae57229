"""Fixtures of the tests of the server."""

import pytest

from driftlaw.testing.fixtures import make_images


@pytest.fixture
def run_server(tmp_path):
    """A function that starts a server; all are closed at the end."""
    started = []

    def start(**options):
        from tests.serving.running import Running

        running = Running(options.pop("folder", tmp_path / f"snapshots-{len(started)}"), **options)
        running.client.__enter__()
        started.append(running)
        return running

    yield start
    for running in started:
        running.client.__exit__(None, None, None)


@pytest.fixture
def images():
    """Eight images (8, 3, 16, 16)."""
    return make_images(0).numpy()
