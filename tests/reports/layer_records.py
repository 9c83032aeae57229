"""Synthetic runs of LAW with known layer diagnostics."""

from dataclasses import replace

from tests.reports.example_records import make_record

LAYERS = [f"stages.{stage}.{name}.weight" for stage in range(3) for name in ("conv", "norm", "more")]
FLAT = [1.0] * 9
EARLY = [1.0, 0.9, 0.8, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05]
LATE = EARLY[::-1]


def make_layer_record(domain, *, weights=FLAT, sharpness=None, **options):
    """Return a run of one domain whose last step has the given diagnostics; earlier steps have other values."""
    options = {"batches_per_domain": 4, "layers": LAYERS, "stream": {"schedule": "single"}, **options}
    record = make_record("law", {domain: 10.0}, **options)
    for line in record.batches:
        line["facts"] = {"layer_weights": [0.5] * len(weights)}
        if sharpness:
            line["facts"]["layer_sharpness"] = [9.0] * len(sharpness)
    record.batches[-1]["facts"]["layer_weights"] = list(weights)
    if sharpness:
        record.batches[-1]["facts"]["layer_sharpness"] = list(sharpness)
    labels = {"layer_weights": LAYERS, "layer_sharpness": LAYERS}
    return replace(record, header={**record.header, "fact_labels": labels})
