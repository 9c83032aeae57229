"""Commands that were started on several ranks, by torchrun or by Slurm: one process group, output of rank 0 only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from driftlaw.errors import RankError, UsageError

if TYPE_CHECKING:
    import torch

TIMEOUT = timedelta(minutes=10)  # of every collective
PAUSE = 5.0  # seconds that other ranks wait before they end, because torchrun ends all ranks when one has ended


def _size() -> int:
    started = all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
    return int(os.environ["WORLD_SIZE"]) if started else 1


def rank() -> int:
    """Return the number of this process among those of the command, from 0."""
    return int(os.environ["RANK"]) if _size() > 1 else 0


def check_command(name: str | None) -> None:
    """Raise if a command cannot run on several ranks."""
    if _size() > 1 and name != "run":
        raise UsageError(f"`driftlaw {name}` does not run on several ranks. Start it without torchrun; `run` does.")


def start_group(device: str) -> tuple[torch.device, Any]:
    """Return the device of this process, and the process group of all ranks; None if there is one process."""
    import torch

    from driftlaw.hardware import pick_device

    place, dist = pick_device(device), cast("Any", torch.distributed)
    if _size() == 1:
        return place, None
    if place.type == "cuda":
        local, count = int(os.environ.get("LOCAL_RANK", rank())), torch.cuda.device_count()
        place = torch.device("cuda", local % count)
        torch.cuda.set_device(place)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", _size()))
    shared = place.type != "cuda" or here > torch.cuda.device_count()
    try:
        store, *_ = next(dist.rendezvous("env://", timeout=TIMEOUT))
        if here == _size():  # torchrun keeps the store, with the addresses of ranks that it has started again
            store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
        more: dict[str, Any] = {"rank": rank(), "world_size": _size(), "timeout": TIMEOUT}
        dist.init_process_group("gloo" if shared else "nccl", store=store, **more)
    except RuntimeError as error:
        raise RankError(f"The {_size()} ranks could not connect to each other: {error}") from error
    return place, dist.group.WORLD


def end_group() -> None:
    """Leave the process group, if there is one."""
    if _has_group():
        import torch.distributed as dist

        dist.destroy_process_group()


@contextmanager
def hidden_output() -> Iterator[None]:
    """Context manager that hides what is printed on all ranks but the first."""
    if rank() == 0:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        try:
            yield
        except BaseException as error:
            if not _has_group() and not (isinstance(error, SystemExit) and not error.code):
                time.sleep(PAUSE)  # rank 0 reports the same error
            raise


def _has_group() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.distributed.is_initialized()


def describe(error: Exception) -> str:
    """Return the message of an error, with the rank on which it occurred if that is not the first."""
    return f"rank {rank()}: {error}" if rank() else str(error)


def is_first_report(error: Exception) -> bool:
    """Return True if no other rank reports this error, or the error that led to it."""
    if _size() == 1:
        return True
    if not _has_group():
        return rank() == 0  # the same command line has the same errors on all ranks
    import torch.distributed as dist

    store: Any = dist.distributed_c10d._get_default_store()
    text = f"{rank()}: {error}"
    key = f"driftlaw error {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    try:
        first: str = store.compare_set(key, "", text).decode()
    except RuntimeError:  # the process with the store has ended
        return not isinstance(error, RankError)
    return first == text or not (isinstance(error, RankError) or first.partition(": ")[2] == str(error))
