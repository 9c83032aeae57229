"""``reliability bad-images``: bad images in every batch must not change the predictions of the others."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from benchmarks import options

KINDS = ("nan", "infinite", "out of range", "black", "constant")
SHARES = (0.01, 0.1, 0.5)


def bad_images(
    methods: Annotated[str, typer.Option(help="Comma-separated methods (default: all).")] = "",
    batches: Annotated[int, typer.Option(min=1, help="Batches per case.")] = 4,
    batch_size: Annotated[int, typer.Option(min=4, help="Good images per batch.")] = 32,
    device: options.Device = "cpu",
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Add bad images to every batch of a guarded adapter, and compare it with one that receives only the good ones.

    A prediction is unequal if one bit of its logits differs. On a GPU, sums in another order change bits too: the
    result also has the largest difference of a logit, and the number of images whose class differs.

    Example: python -m benchmarks reliability bad-images --out results/bench/reliability-bad-images.json
    """
    import torch

    from benchmarks.reliability.data import make_adapter, read_domains
    from driftlaw.hardware import environment, pick_device
    from driftlaw.methods import list_methods

    values = dict(zip(KINDS, (torch.nan, torch.inf, 255.0, 0.0, 0.5), strict=True))
    names = options.split_names(methods) or list_methods()
    place = pick_device(device)

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        images = read_domains(batches * batch_size)[0][0].to(place).split(batch_size)
        rows = []
        for method in names:
            for kind in KINDS:
                for share in SHARES:
                    generator = torch.Generator().manual_seed(0)
                    adapter, other = (make_adapter(method, guard=True).to(place) for _ in range(2))
                    count = max(1, round(batch_size * share / (1 - share)))
                    unequal, classes, not_nan, largest = 0, 0, 0, 0.0
                    for good in images:
                        is_bad = torch.zeros(batch_size + count, dtype=torch.bool)
                        is_bad[torch.randperm(len(is_bad), generator=generator)[:count]] = True
                        batch = torch.full((len(is_bad), *good.shape[1:]), values[kind], device=place)
                        batch[~is_bad] = good
                        logits, alone = adapter(batch).cpu(), other(good).cpu()
                        unequal += int((logits[~is_bad] != alone).any(1).sum())
                        classes += int((logits[~is_bad].argmax(1) != alone.argmax(1)).sum())
                        largest = max(largest, float((logits[~is_bad] - alone).abs().max()))
                        not_nan += int(logits[is_bad].isfinite().all(1).sum())
                    rows.append(
                        {
                            "method": method,
                            "kind": kind,
                            "share": share,
                            "good": batches * batch_size,
                            "unequal": unequal,
                            "other_classes": classes,
                            "largest_difference": largest,
                            "bad_with_finite_logits": not_nan,
                        }
                    )
            on_progress(f"{method}: {sum(row['unequal'] for row in rows if row['method'] == method)} unequal")
        return {"bench": "reliability-bad-images", "rows": rows, **environment(place)}

    options.report_result(measure, len(names), out, as_json)
