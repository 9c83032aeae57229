"""The server as a process of its own: SIGTERM answers what waits, saves the state and exits with 0."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from driftlaw.datasets import load_dataset
from driftlaw.serving.client import Client
from tests.serving.running import Running  # noqa: F401 (skips without the extra 'serve')

pytest.importorskip("uvicorn", reason="needs the extra 'serve'")


def start(tmp_path):
    command = [sys.executable, "-m", "driftlaw", "serve", "--method", "tent", "--port", "0", "--device", "cpu"]
    options = ["--snapshots", str(tmp_path / "state"), "--log", str(tmp_path / "log.jsonl")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environment)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            return process, Client(found[0]), lines
    raise AssertionError("".join(lines))


def test_sigterm_answers_what_waits_and_a_restart_continues(tmp_path):
    images = load_dataset("cifar10-embedded").images(range(64)).transpose(0, 3, 1, 2)
    process, client, _ = start(tmp_path)
    try:
        for _ in range(3):
            client.predict(images)
        answers = []
        sender = threading.Thread(target=lambda: answers.append(client.predict(images)))
        sender.start()
        while client.status()["queue"] == 0 and not answers:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        sender.join()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert len(answers[0]) == 64
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in log] == [1, 2, 3, 4]
    assert log[-1]["predictions"] == [row["class"] for row in answers[0]]
    process, client, lines = start(tmp_path)
    try:
        assert "after 4 steps" in "".join(lines)
        assert client.status()["steps"] == 4
    finally:
        process.kill()
        process.communicate()
