"""Cells one after the other and side by side: what goes wrong with one leaves the others alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
from types import SimpleNamespace

import pytest

from driftlaw.experiments.runners import Orders, _Crew, run_cells, share_of_threads
from driftlaw.records import read_record
from tests.experiments.tiny import tiny_cell, tiny_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return tiny_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


class Notes:
    """Takes down what it is told."""

    def __init__(self):
        self.steps, self.done, self.outcomes = {}, {}, []

    def started(self, cell, steps):
        self.steps[cell.seed] = steps

    def stepped(self, cell, done):
        self.done[cell.seed] = done

    def ended(self, outcome):
        self.outcomes.append(outcome)


class Killer(Notes):
    """Kills the worker that is the first to begin."""

    def started(self, cell, steps):
        if not self.steps:
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGKILL)
        super().started(cell, steps)


def test_one_after_the_other_an_error_is_an_outcome_and_the_rest_goes_on(weights, tmp_path):
    cells = [tiny_cell(weights, seed=1), tiny_cell(weights, seed=2, settings={"tau": 1}), tiny_cell(weights, seed=3)]
    notes = Notes()
    outcomes = run_cells(cells, Orders(tmp_path, "cpu", compress=True, command="driftlaw test"), notes)
    assert outcomes == notes.outcomes
    assert [bool(outcome.problem) for outcome in outcomes] == [False, True, False]
    assert "Unknown setting 'tau'" in outcomes[1].problem
    assert outcomes[0].record == cells[0].places(tmp_path)[1]
    assert read_record(outcomes[0].record).header["command"] == "driftlaw test"
    assert (notes.steps, notes.done) == ({1: 4, 3: 4}, {1: 4, 3: 4})


def test_side_by_side_a_killed_process_is_reported_and_the_rest_goes_on(weights, tmp_path):
    cells = [tiny_cell(weights, seed=seed) for seed in (1, 2)]
    notes = Killer()
    outcomes = run_cells(cells, Orders(tmp_path, "cpu", threads=1), notes, jobs=2)
    by_seed = {outcome.cell.seed: outcome for outcome in outcomes}
    assert "SIGKILL" in by_seed[1].problem
    assert "goes on" in by_seed[1].problem
    record = read_record(by_seed[2].record)
    assert record.finished
    assert record.header["device"]["threads"] == 1
    assert notes.done[2] == notes.steps[2] == 4
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("memory", "has_room"),
    [
        ([], True),
        ([None], False),
        ([(100, None)], True),
        ([(100, 110)], False),
        ([(100, 130)], True),
        ([(300, 800), (100, 200)], False),
        ([(100, 800), None], False),
    ],
)
def test_one_more_is_taken_on_only_where_the_largest_so_far_would_fit_again(memory, has_room):
    crew = _Crew([], Orders(None, "cpu"), Notes(), jobs=9)
    crew.workers = [SimpleNamespace(memory=each) for each in memory]
    assert crew._has_room() is has_room


def test_threads_are_shared_and_everybody_has_one():
    assert share_of_threads(1) >= 1
    assert share_of_threads(10_000) == 1
