"""Two ranks with parts of the batches, against one process with whole batches, in float64."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import driftlaw
from driftlaw.errors import UsageError
from driftlaw.testing.fixtures import tiny_model
from driftlaw.testing.snapshots import differences
from tests.distributed.two_ranks import SIZES, VARIANTS, batches, make_adapter, run_alone

LIMIT = 1e-9  # of issue 19; the differences are rounding errors, which Adam divides by small gradients
pytestmark = [  # the other processes have the package's limits, and print no warnings
    pytest.mark.small_batches,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    program = Path(__file__).with_name("two_ranks.py")
    processes = [
        subprocess.Popen([sys.executable, "-W", "ignore", program, str(rank), folder], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    messages = [process.communicate(timeout=300)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 9], messages
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("name", VARIANTS)
def test_two_ranks_give_what_one_process_gives(ranks, name):
    expected, state = run_alone(name)
    parts = [one["runs"][name][0] for one in ranks]
    for size, first, second, logits in zip(SIZES, *parts, expected, strict=True):
        assert [len(first), len(second)] == [-(-size // 2), size // 2]
        torch.testing.assert_close(torch.cat([first, second]), logits, rtol=0, atol=LIMIT, equal_nan=True)
    states = [one["runs"][name][1] for one in ranks]
    assert differences(*states) == []
    adapter = make_adapter(name)
    initial, trained = adapter.state_dict(), [f"model.{key}" for key in adapter.trainable_names]
    for key in [key for key, value in state.items() if torch.is_tensor(value)]:
        torch.testing.assert_close(states[0][key], state[key], rtol=0, atol=LIMIT)
    assert trained == [] or max(float((state[key] - initial[key]).abs().max()) for key in trained) > 1e-5


def test_a_state_of_two_ranks_continues_on_one(ranks):
    adapter = make_adapter("law")
    adapter.load_state_dict(ranks[0]["runs"]["law"][1])
    assert adapter.steps == len(SIZES)
    expected = make_adapter("law")
    expected.load_state_dict(run_alone("law")[1])
    images = batches()[0]
    torch.testing.assert_close(adapter(images), expected(images), rtol=0, atol=LIMIT)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("seed", "seed: 0 on rank 0; 1 on rank 1"),
        ("settings", "setting tau: 1.0 on rank 0; 2.0 on rank 1"),
        ("model", "weights of the model"),
        ("dtype", "images: torch.float64 (3, 16, 16) on rank 0; torch.float32 (3, 16, 16) on rank 1"),
        ("type", "images: torch.float64 (3, 16, 16) on rank 0; list on rank 1"),
        ("NaN", "some pixels are NaN"),
        ("whole", "torch.float64 (2, 3, 16, 16) on rank 0; torch.float64 (3, 3, 16, 16) on rank 1"),
        ("keywords", "receives images only, found mask"),
        ("empty", "the batch is empty"),
    ],
)
def test_both_ranks_report_a_difference_or_bad_images(ranks, name, message):
    texts = [one["errors"][name] for one in ranks]
    assert texts[0] == texts[1]
    assert texts[0].startswith("UsageError")
    assert message in texts[0]


def test_errors_change_nothing(ranks):
    assert ranks[0]["unchanged"]
    assert ranks[1]["unchanged"]


def test_whole_batches_give_all_logits_on_every_rank(ranks):
    adapter, images = make_adapter("law"), batches()[0]
    logits, predicted = adapter(images), adapter.predict(images)
    for rank, one in enumerate(ranks):
        torch.testing.assert_close(one["whole"][0], logits, rtol=0, atol=LIMIT)
        torch.testing.assert_close(one["whole"][1], predicted, rtol=0, atol=LIMIT)
        torch.testing.assert_close(one["whole"][2], predicted.tensor_split(2)[rank], rtol=0, atol=LIMIT)
        assert torch.equal(one["pickled"], logits)


def test_lost_and_late_ranks_end_in_an_error(ranks):
    assert ranks[0]["late"].startswith("RankError: Another rank of the group ended, failed, or did not take part")
    message, unchanged = ranks[0]["dead"]
    assert message.startswith("RankError")
    assert unchanged


@pytest.mark.parametrize("group", ["world", None])
def test_a_group_needs_an_initialised_process_group(group):
    with pytest.raises(UsageError, match="torchrun") if group else pytest.raises(UsageError, match="one process"):
        driftlaw.adapt(tiny_model(), group=group) if group else driftlaw.AdapterPool(tiny_model(), group="world")
