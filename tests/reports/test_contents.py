import pytest

from driftlaw.reports.contents import summarize
from driftlaw.reports.tables import make_tables
from tests.reports.example_records import make_record


def sentence(errors, **options):
    return summarize(make_tables([make_record(name, [error] * 15, **options) for name, error in errors.items()])[0])


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        (
            {"source": 45, "norm": 30, "law": 24},
            "LAW has the lowest mean error: 24.0 % (1 seed), 21.0 percentage points below "
            "the source model (45.0 %). The next is BN-1 with 30.0 %.",
        ),
        (
            {"source": 45, "law": 24},
            "LAW has the lowest mean error: 24.0 % (1 seed), 21.0 percentage points below the source model (45.0 %).",
        ),
        ({"tent": 30, "law": 24}, "LAW has the lowest mean error: 24.0 % (1 seed). The next is TENT with 30.0 %."),
        ({"source": 20, "law": 24}, "Source has the lowest mean error: 20.0 % (1 seed). The next is LAW with 24.0 %."),
        ({"tent": 24, "law": 24}, "LAW and TENT share the lowest mean error: 24.0 % (1 seed)."),
        ({"law": 24}, "LAW has a mean error of 24.0 % (1 seed)."),
    ],
)
def test_summary(errors, expected):
    assert sentence(errors) == expected


def test_summary_without_finished_runs():
    assert sentence({"law": 24}, finished=False, batches_done=4) == "No run is finished yet."
