"""``reliability attack``: hostile images, made with the gradients of the adapter's model, and their neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchmarks import options

if TYPE_CHECKING:
    from torch import Tensor, nn

SHARES = (0.01, 0.05, 0.1)
VARIANTS = {"any pixels": None, "natural": 8 / 255}
"""Attacks, and how far a pixel may be from that of a natural image. The second kind passes every test of an image."""


def attack(
    methods: Annotated[str, typer.Option(help="Comma-separated methods.")] = "norm,tent,law",
    batches: Annotated[int, typer.Option(min=1, help="Attacked batches per case.")] = 8,
    batch_size: Annotated[int, typer.Option(min=20, help="Images per batch.")] = 100,
    steps: Annotated[int, typer.Option(min=1, help="Gradient steps of the attacker per batch.")] = 20,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Replace some images of every batch by hostile ones, and count the predictions of their neighbours that change.

    The attacker knows the adapter, its current weights and the whole batch. It maximises the cross-entropy of the
    neighbours' predictions by signed gradient steps on its own images. Changed predictions are counted in the attacked
    batch and, because updates last, in a clean batch after the last attack. The adaptive attacker stays close to
    natural images, which no test of single images can notice.

    Example: python -m benchmarks reliability attack --out results/bench/reliability-attack.json
    """
    import torch

    from benchmarks.reliability.data import make_adapter, read_domains
    from driftlaw.hardware import environment

    names = options.split_names(methods)

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        images = read_domains(batch_size * (batches + 1))[10][0].split(batch_size)
        rows = []
        for method in names:
            for variant, distance in VARIANTS.items():
                for share in SHARES:
                    for guard in (False, True):
                        adapter, clean = (make_adapter(method, guard=guard) for _ in range(2))
                        count, flipped = max(1, round(share * batch_size)), 0
                        for batch in images[:-1]:
                            expected = clean(batch)[count:].argmax(1)
                            hostile = make_hostile(adapter.model, batch, count, steps, distance)
                            flipped += int((adapter(hostile)[count:].argmax(1) != expected).sum())
                        later = (adapter(images[-1]).argmax(1) != clean(images[-1]).argmax(1)).double().mean()
                        rows.append(
                            {
                                "method": method,
                                "attack": variant,
                                "share": share,
                                "guard": guard,
                                "flipped": 100 * flipped / (batches * (batch_size - count)),
                                "flipped_later": 100 * float(later),
                                "actions": dict(adapter.guard.counts) if adapter.guard else {},
                            }
                        )
            on_progress(method)
        return {
            "bench": "reliability-attack",
            "steps": steps,
            "batch_size": batch_size,
            "rows": rows,
            **environment(torch.device("cpu")),
        }

    options.report_result(measure, len(names), out, as_json)


def make_hostile(model: nn.Module, batch: Tensor, count: int, steps: int, distance: float | None) -> Tensor:
    """Return a batch whose first ``count`` images were changed so that the predictions of the others change.

    Args:
        model: the adapter's model; BatchNorm layers use the statistics of the batch.
        batch: natural images in [0, 1].
        count: number of hostile images.
        steps: number of signed gradient steps.
        distance: how far a pixel may be from the natural one; None: any value in [0, 1].
    """
    import torch
    from torch.nn.functional import cross_entropy

    start, rest = batch[:count], batch[count:]
    with torch.no_grad():
        target = model(batch)[count:].argmax(1)
    reach = 1.0 if distance is None else distance
    hostile = start.clone()
    for _ in range(steps):
        hostile.requires_grad_()
        loss = cross_entropy(model(torch.cat([hostile, rest]))[count:], target)
        (gradient,) = torch.autograd.grad(loss, hostile)
        with torch.no_grad():
            moved = hostile + 2.5 * reach / steps * gradient.sign()
            hostile = moved.clamp(start - reach, start + reach).clamp(0, 1)
    return torch.cat([hostile.detach(), rest])
