import pytest

from driftlaw.reports.summary import summarise
from driftlaw.reports.tables import make_tables
from tests.reports.example_records import make_record


def sentence(errors, **options):
    return summarise(make_tables([make_record(name, [error] * 15, **options) for name, error in errors.items()])[0])


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        (
            {"source": 45, "norm": 30, "law": 24},
            "LAW has the lowest mean error, 24.0 % (1 seed): 21.0 points below "
            "the network that does not adapt (45.0 %); the next, BN-1, has 30.0 %.",
        ),
        (
            {"source": 45, "law": 24},
            "LAW has the lowest mean error, 24.0 % (1 seed): 21.0 points below "
            "the network that does not adapt (45.0 %).",
        ),
        ({"tent": 30, "law": 24}, "LAW has the lowest mean error, 24.0 % (1 seed); the next, TENT, has 30.0 %."),
        ({"source": 20, "law": 24}, "Source has the lowest mean error, 20.0 % (1 seed); the next, LAW, has 24.0 %."),
        ({"tent": 24, "law": 24}, "LAW and TENT share the lowest mean error, 24.0 %."),
        ({"law": 24}, "LAW errs on 24.0 % of the stream (1 seed)."),
    ],
)
def test_the_sentence_says_what_the_numbers_say(errors, told):
    assert sentence(errors) == told


def test_no_winner_is_named_before_a_run_has_ended():
    assert sentence({"law": 24}, finished=False, batches_done=4) == "No run has come to the end of its stream yet."
