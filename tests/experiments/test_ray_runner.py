"""Runs on Ray: records equal those of a local run, lost workers are retried, and bad clusters are refused."""

from __future__ import annotations

import importlib.metadata
import json
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from driftlaw.cli import app
from driftlaw.errors import UsageError
from driftlaw.experiments import RunOptions, ray_files, ray_runner
from driftlaw.experiments.ray_cluster import connect
from driftlaw.experiments.ray_files import needed_files
from driftlaw.experiments.ray_runner import RayRunner
from driftlaw.experiments.run_spec import plan_run
from driftlaw.experiments.runners import run_all
from driftlaw.methods import registered_methods
from driftlaw.records.jsonl import read_lines
from tests.experiments import tiny
from tests.experiments.tiny import tiny_weights

KILLER = '''
import os, signal
from pathlib import Path
from driftlaw.methods.norm import Norm

class Killer(Norm, name="killer"):
    """Ends its own process in the third step, unless a file exists, which it then creates."""

    class Config(Norm.Config):
        marker: str = ""
        """File."""

    def update(self, images, plan):
        marker = Path(self.config.marker)
        if self.steps == 2 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().update(images, plan)
'''


BATCH = {"statistics": "batch"}  # in workers, small batches are collected by default


def tiny_spec(weights, method="norm", *, settings=BATCH, **more):
    return tiny.tiny_spec(weights, method, settings=settings, **more)


class Listener:
    """Stores what it receives, by seed."""

    def __init__(self):
        self.nodes, self.steps, self.results, self.notes = {}, {}, [], []

    def started(self, spec, steps, node=""):
        self.nodes[spec.seed] = node

    def stepped(self, spec, done):
        self.steps.setdefault(spec.seed, []).append(done)

    def ended(self, result):
        self.results.append(result)

    def note(self, text):
        self.notes.append(text)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


@pytest.fixture(scope="module")
def ray_with_two_cpus(tmp_path_factory):
    ray = pytest.importorskip("ray", reason='Ray is not installed (pip install "driftlaw[ray]")')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRIFTLAW_DATA", str(tmp_path_factory.mktemp("node")))  # for the workers
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        options = {"include_dashboard": False, "log_to_driver": False, "object_store_memory": 2**27}
        ray.init("local", num_cpus=2, logging_level="ERROR", **options)
    yield ray
    ray.shutdown()


def contents(result):
    """Return the lines of a record without what differs between two runs."""

    def strip(value):
        if isinstance(value, dict):
            return {key: strip(inner) for key, inner in value.items() if key != "timing"}
        return [strip(inner) for inner in value] if isinstance(value, list) else value

    return strip(read_lines(result.record))


def test_records_equal_those_of_a_local_run_and_are_reused_without_a_task(ray_with_two_cpus, weights, tmp_path):
    specs = [tiny_spec(weights, seed=1), tiny_spec(weights, seed=2, settings={"tau": 1}), tiny_spec(weights, seed=3)]
    options = RunOptions(tmp_path / "ray", compress=True, command="driftlaw test")
    listener, again = Listener(), Listener()
    first, wrong, third = run_all(specs, options, listener, on="ray")
    assert "Unknown setting 'tau'" in wrong.problem
    local = run_all(specs, RunOptions(tmp_path / "local", command="driftlaw test"), Listener())
    assert [contents(first), contents(third)] == [contents(local[0]), contents(local[2])]
    assert first.record == specs[0].record_candidates(tmp_path / "ray")[1]
    assert listener.nodes == dict.fromkeys((1, 3), socket.gethostname())
    assert listener.steps[3][0] == 1
    assert len(listener.results) == 3
    assert "CPU threads per run: 1" in listener.notes[0]
    assert "reserves" in listener.notes[1]
    assert run_all(specs[:1], options, again, on="ray") == [first]
    assert (again.nodes, again.results) == ({}, [first])


def test_a_run_whose_worker_dies_resumes_from_its_checkpoint(ray_with_two_cpus, weights, tmp_path, monkeypatch, capsys):
    file, marker = tmp_path / "killer.py", tmp_path / "marker"
    file.write_text(KILLER)
    monkeypatch.setitem(registered_methods(), "killer", None)  # restored after the test
    del registered_methods()["killer"]
    plan_run("embedded", methods=str(file))  # imports the method
    lost = tiny_spec(weights, "killer", settings={**BATCH, "marker": str(marker)})
    options, listener = RunOptions(tmp_path / "ray", checkpoint_seconds=0.0), Listener()
    (resumed,) = run_all([lost], options, listener, on="ray")
    (expected,) = run_all([lost], RunOptions(tmp_path / "local"), Listener())
    assert contents(resumed) == contents(expected)
    reason = f"its worker process died ({socket.gethostname()})"
    # A checkpoint reaches the caller at the next step.
    assert f"tiny killer seed 1: retry 1 from step 1, because {reason}" in listener.notes
    assert capsys.readouterr().out == ""


def test_a_run_is_given_up_after_some_retries(weights, tmp_path):
    runner = RayRunner("ray", Listener())
    cell = ray_runner._Cell(tiny_spec(weights), RunOptions(tmp_path))
    for _ in range(ray_runner.MAX_RETRIES):
        runner._active[cell.spec.file_name] = cell
        runner._retry(cell, "its node was lost")
        assert runner._queued.pop() is cell
    runner._retry(cell, "its node was lost")
    assert cell.future.result().problem.startswith("It was retried 3 times; the last time its node was lost.")
    assert not runner._queued


def test_an_interrupt_keeps_the_checkpoint_and_the_same_command_continues(ray_with_two_cpus, weights, tmp_path):
    spec, listener = tiny_spec(weights, limit=80), Listener()
    options = RunOptions(tmp_path, checkpoint_seconds=0.0)
    checkpoint = Path(f"{spec.record_path(tmp_path)}.checkpoint.pt")

    def interrupt():
        with RayRunner("ray", listener) as runner:
            future = runner.submit(spec, options)
            while not checkpoint.exists():
                assert not future.done()
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert not listener.results
    continued = Listener()
    (result,) = run_all([spec], options, continued, on="ray")
    assert continued.steps[1][0] > 1
    assert contents(result)[-1]["closing"]


def test_files_are_sent_to_nodes_that_lack_them(ray_with_two_cpus, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_weights(Path("here.safetensors"))
    monkeypatch.setattr(ray_runner, "missing_files", lambda expected: list(expected))
    spec, listener = tiny_spec("here.safetensors"), Listener()
    with RayRunner("ray", listener) as runner:
        future = runner.submit(spec, RunOptions(tmp_path / "out"))
        Path("here.safetensors").unlink()
        assert contents(future.result())[0]["model"]["weights"] == "here"
    assert "does not have" in listener.notes[1]
    with pytest.raises(UsageError, match="not in the current folder"), RayRunner("ray", listener) as runner:
        runner.submit(tiny_spec(weights), RunOptions(tmp_path / "out"))
    monkeypatch.setattr(ray_files, "MAX_SENT_BYTES", 10)
    with (
        pytest.raises(UsageError, match="Put them on a path that all nodes share"),
        RayRunner("ray", listener) as runner,
    ):
        runner.submit(tiny_spec(tiny_weights(Path("other.safetensors"))), RunOptions(tmp_path / "out"))


def test_files_that_a_run_reads_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("net.py", "neighbour.py", "net.pth"):
        Path(name).touch()
    data = tmp_path / "data"
    tiny_weights(data / "weights" / "mine.safetensors")

    def needed(weights, dataset, **model):
        spec = tiny_spec(weights, dataset=dataset)
        return sorted(needed_files(replace(spec, model={**spec.model, **model}), data))

    assert needed("wrn_16_1-cifar10", "cifar10-embedded") == []
    assert needed("mine", "cifar10-c") == ["data/CIFAR-10-C", "data/weights/mine.safetensors"]
    assert needed("net.py:make", "folder:photos", checkpoint="net.pth") == [
        "folder/neighbour.py",
        "folder/net.pth",
        "folder/net.py",
        "folder/photos",
    ]
    shards = ["folder/a/0.tar", "folder/a/1.tar"]
    assert needed("timm:resnet18", "shards:a/{0..1}.tar|memory://b/0.tar") == shards


def test_a_node_with_other_versions_is_named(ray_with_two_cpus, monkeypatch):
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0" if name == "torch" else version(name))
    with pytest.raises(UsageError, match=rf"{socket.gethostname()}: torch [0-9.]+, here 0.0$"):
        run_all([], RunOptions(Path()), Listener(), on="ray")


def test_the_command_line_prints_json_only(ray_with_two_cpus, tmp_path):
    words = f"run embedded --methods norm --limit 4 --device cpu --out {tmp_path} --on ray --json"
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 0, result.output
    assert [run["method"] for run in json.loads(result.stdout)["runs"]] == ["norm"]
    assert "Ray: nodes: 1, CPUs: 2" in result.stderr


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ("127.0.0.1:1", r"Cannot connect to Ray at 127\.0\.0\.1:1: .*refused"),
        ("ray://127.0.0.1:1", r"Cannot connect to Ray at ray://127\.0\.0\.1:1: .*refused"),
        ("there", "'there' is not an address. Expected 'ray', ray://HOST:PORT or HOST:PORT"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_an_error(on, message, monkeypatch):
    ray = pytest.importorskip("ray", reason='Ray is not installed (pip install "driftlaw[ray]")')
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(UsageError, match=message):
        connect(on)


def test_without_ray_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r'pip install "driftlaw\[ray\]"'):
        connect("ray")
