"""``scale ranks-kill``: ends a rank with ``kill -9``, lets torchrun start all ranks again, and compares the records."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import options
from benchmarks.reliability.kill import read_contents

COMMAND = (
    "torch.distributed.run --standalone --max-restarts 3 --nproc-per-node {ranks} -m driftlaw run embedded --methods "
    'law --set stream.batch_size=8 --set stream.corruptions=["fog","snow","contrast"] --limit 64 '
    "--checkpoint-seconds 0.2 --device cpu --out out"
)
PAUSE = 0.02  # seconds between two looks at the record


def ranks_kill(
    ranks: Annotated[int, typer.Option(min=2, help="Number of ranks.")] = 2,
    kills: Annotated[int, typer.Option(min=1, help="Runs in which one rank is killed.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the moments and of the ranks.")] = 0,
    out: options.Out = None,
    as_json: options.AsJson = False,
) -> None:
    """Kill one rank of `torchrun … driftlaw run` at a random batch, and compare the records with an undisturbed run.

    Example: python -m benchmarks scale ranks-kill --out results/bench/scale-ranks-kill.json
    """
    import torch

    from driftlaw.hardware import environment

    def measure(on_progress: options.ProgressCallback) -> dict[str, Any]:
        generator, rows = random.Random(seed), []
        with tempfile.TemporaryDirectory(prefix="driftlaw-ranks-") as root:
            run_command(Path(root) / "undisturbed", ranks)
            expected = read_contents(Path(root) / "undisturbed" / "out")
            total = count_batches(Path(root) / "undisturbed")
            on_progress(f"undisturbed: {total} batches")
            for number in range(kills):
                folder, rank, moment = Path(root) / str(number), generator.randrange(ranks), generator.randrange(total)
                restarts = run_command(folder, ranks, rank, moment)
                found = read_contents(folder / "out")
                differing = sorted(path for path in expected | found if expected.get(path) != found.get(path))
                rows.append({"rank": rank, "after_batches": moment, "restarts": restarts, "differing": differing})
                on_progress(f"rank {rank} after {moment} batches")
        setting = {"ranks": ranks, "batches": total, "arguments": COMMAND.format(ranks=ranks), "seed": seed}
        return {"bench": "scale-ranks-kill", **setting, "rows": rows, **environment(torch.device("cpu"))}

    options.report_result(measure, kills + 1, out, as_json)


def run_command(folder: Path, ranks: int, rank: int | None = None, moment: int = 0) -> int:
    """Run the command to its end and return how often its ranks were started again.

    Args:
        folder: a new folder for its output.
        ranks: number of ranks.
        rank: the rank that is killed; None: none.
        moment: number of batches in the records after which it is killed.
    """
    folder.mkdir()
    paths = os.pathsep.join(sys.path)
    changes = {"DRIFTLAW_DATA": str(folder / "data"), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", *COMMAND.format(ranks=ranks).split()]
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(command, cwd=folder, env=os.environ | changes, stdout=log, stderr=log)
        killed = rank is None
        while process.poll() is None:
            started = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            if rank is not None and not killed and len(started) == ranks and count_batches(folder) >= moment:
                os.kill(int(started[rank]), signal.SIGKILL)
                killed = True
            time.sleep(PAUSE)
        log.seek(0)
        text = log.read()
    if process.returncode or not killed:
        raise RuntimeError(f"The command ended with exit code {process.returncode}: {text[-2000:]}")
    return text.count("failed (exitcode:")  # torchrun reports each of them


def count_batches(folder: Path) -> int:
    """Return the number of batches in the records of a run."""
    lines = [line for path in (folder / "out").glob("*.jsonl") for line in path.read_bytes().splitlines()]
    return sum(line.startswith(b'{"batch"') for line in lines)
