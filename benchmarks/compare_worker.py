"""Child process of ``python -m benchmarks compare``: runs steps of one checkout when the parent asks for them.

The parent starts this file with the checkout first on PYTHONPATH. The checkout may be of another commit, so that only
``driftlaw.adapt`` and ``driftlaw.models.build_model`` are used. Requests and replies are JSON, one per line: requests
on stdin, replies on the stdout that the process was started with. Everything else that is printed goes to stderr.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

BATCHES = 4  # shown in turn


def build_model(name: str, num_classes: int, seed: int) -> nn.Module:
    """Return a random model, the same one in every checkout whose layers are created in the same order."""
    from driftlaw import models

    torch.manual_seed(seed)
    return models.build_model(name, num_classes=num_classes).eval()


class Worker:
    """One adapter of the checkout and its batches; the methods are the requests of the parent."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.adapter: Any = None
        self.batches: list[Tensor] = []
        self.position = 0

    def start(self, *, checkout: str, device: str, threads: int | None, deterministic: bool) -> dict[str, Any]:
        """Configure torch, and check that driftlaw was imported from the checkout."""
        import driftlaw

        package = Path(driftlaw.__file__).resolve().parent
        if package.parent != Path(checkout).resolve():
            raise RuntimeError(f"driftlaw was imported from {package}, expected {checkout}")
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = torch.device(device)
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = not deterministic, deterministic
        return {"version": driftlaw.__version__}

    def prepare(
        self,
        *,
        model: str,
        method: str,
        settings: dict[str, Any],
        batch_size: int,
        side: int,
        num_classes: int,
        seed: int,
        warm_up: int,
    ) -> dict[str, Any]:
        """Build an adapter, run ``warm_up`` steps, and return a hash of the logits of the last one."""
        import driftlaw

        network = build_model(model, num_classes, seed).to(self.device)
        self.adapter = driftlaw.adapt(network, method, seed=seed, **settings)
        generator = torch.Generator().manual_seed(seed)
        images = [torch.rand(batch_size, 3, side, side, generator=generator) for _ in range(BATCHES)]
        # As the evaluator passes them: channels last, on the device.
        self.batches = [batch.to(self.device, memory_format=torch.channels_last) for batch in images]
        self.position = 0
        logits = self._steps(warm_up)
        return {"logits_sha256": hashlib.sha256(logits.detach().float().cpu().numpy().tobytes()).hexdigest()}

    def run(self, *, steps: int) -> dict[str, Any]:
        """Run some steps and return the milliseconds per step: CUDA events on a GPU, the clock on a CPU."""
        if self.device.type != "cuda":
            start = time.perf_counter()
            self._steps(steps)
            return {"milliseconds": 1000 * (time.perf_counter() - start) / steps}
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self.device)
        first.record()
        self._steps(steps)
        last.record()
        torch.cuda.synchronize(self.device)
        return {"milliseconds": first.elapsed_time(last) / steps}

    def release(self) -> dict[str, Any]:
        """Free the adapter and its memory."""
        self.adapter, self.batches = None, []
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return {}

    def _steps(self, count: int) -> Tensor:
        for _ in range(count):
            logits = self.adapter(self.batches[self.position % BATCHES])
            self.position += 1
        return logits


def main() -> None:
    """Answer requests until stdin is closed."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the replies
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(worker, request.pop("do"))(**request)
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
