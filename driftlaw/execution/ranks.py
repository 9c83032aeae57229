"""Ranks: collectives of the processes of a torch.distributed group that adapt one model together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from driftlaw.errors import DriftlawError, RankError, UsageError, combined_error

T = TypeVar("T")


class Ranks:
    """The ranks of one process group. A copy shares the group; a pickle contains None instead.

    Every call is a collective: all ranks make the same calls in the same order. The timeout is that of the group.

    Args:
        group: a group of ``torch.distributed`` that this process belongs to, such as ``torch.distributed.group.WORLD``.

    Attributes:
        rank: number of this process in the group, from 0.
        size: number of ranks.
    """

    def __init__(self, group: Any) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise UsageError(
                "group= needs an initialised process group. Start the program with torchrun, and call "
                "torch.distributed.init_process_group() before driftlaw.adapt()."
            )
        if not isinstance(group, dist.ProcessGroup):
            expected = "a process group that this process belongs to, such as torch.distributed.group.WORLD"
            raise UsageError(f"group is of type {type(group).__name__}. Expected {expected}.")
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        self._on_host = "nccl" not in str(dist.get_backend_config(group))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Ranks":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def wait_for_all(self) -> None:
        """Wait until all ranks have arrived; the error names those that have not."""
        if dist.get_backend(self.group) == "gloo":
            # Without the argument it waits for 30 minutes, whatever the group was made with.
            timeout = self.group._get_backend(torch.device("cpu")).options._timeout
            with collective():
                dist.monitored_barrier(self.group, timeout, wait_all_ranks=True)

    def exchange(self, value: T) -> list[T]:
        """Return the values of all ranks, in their order."""
        values: list[Any] = [None] * self.size
        with collective():
            dist.all_gather_object(values, value, group=self.group)
        return values

    def on_first(self, call: Callable[[], T]) -> T:
        """Return on every rank what ``call`` returns on rank 0. An error that it raises there is raised everywhere."""
        result: Any = None
        error: Exception | None = None
        if self.rank == 0:
            try:
                result = call()
            except (DriftlawError, OSError) as raised:
                error = raised
        result, error = self.exchange((result, error))[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def check_equal(self, heading: str, values: Mapping[str, Any]) -> None:
        """Raise UsageError on every rank if values differ; the message lists them by rank."""
        problems = []
        given = self.exchange({name: str(value) for name, value in values.items()})
        for name in dict.fromkeys(name for one in given for name in one):
            found: dict[str, list[str]] = {}
            for rank, one in enumerate(given):
                found.setdefault(one.get(name, "missing"), []).append(str(rank))
            if len(found) > 1:
                texts = [f"{text} on rank {', '.join(ranks)}" for text, ranks in found.items()]
                problems.append(f"{name}: {'; '.join(texts)}")
        if problems:
            raise combined_error(heading, problems)

    def gather_batch(self, images: Any, steps: int, *, whole: bool) -> tuple[Any, slice]:
        """Return the images of all ranks in their order, and which of them are this rank's.

        Args:
            images: the images of this rank, possibly none, as a tensor (0, c, h, w).
            steps: number of steps so far, which must be equal on all ranks.
            whole: whether every rank passes the same, whole batch. All images are this rank's then.
        """
        is_batch = isinstance(images, Tensor) and images.ndim == 4
        kind = f"{images.dtype} {tuple(images.shape[0 if whole else 1 :])}" if is_batch else type(images).__name__
        found = {"steps": steps, "images": kind}
        given = self.exchange((found, len(images) if is_batch else 0))
        if any(other != found for other, _ in given):
            self.check_equal("The ranks differ. Every rank needs the same state and images of one kind:", found)
        if whole or not is_batch:
            return images, slice(None)
        counts = [count for _, count in given]
        start = sum(counts[: self.rank])
        return self.gather_rows(images.detach(), counts), slice(start, start + counts[self.rank])

    def gather_rows(self, values: Tensor, counts: Sequence[int]) -> Tensor:
        """Return the rows of all ranks in their order. Rank i has ``counts[i]`` rows, at the start of ``values``."""
        own = values.new_zeros(max(counts), *values.shape[1:])
        own[: counts[self.rank]] = values[: counts[self.rank]]
        return torch.cat([part[:count] for part, count in zip(self.gather(own), counts, strict=True)])

    def gather(self, values: Tensor) -> list[Tensor]:
        """Return the tensors of all ranks, which have the same shape."""
        own = (values.cpu() if self._on_host else values).contiguous()
        parts = [torch.empty_like(own) for _ in range(self.size)]
        with collective():
            dist.all_gather(parts, own, group=self.group)
        return [part.to(values.device) for part in parts]

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all ranks, with the same bits on each."""
        total = values.cpu() if self._on_host else values
        total = total.clone() if total is values else total
        with collective():
            dist.all_reduce(total, group=self.group)
        return total.to(values.device)


@contextmanager
def collective() -> Iterator[None]:
    """Context manager that replaces torch's errors about lost or late ranks by RankError."""
    try:
        yield
    except RuntimeError as error:  # torch has no class for all of them
        raise RankError(
            "Another rank of the group ended, failed, or did not take part within the timeout of the group. Look for "
            f"its error, and start all ranks again. torch reports: {' '.join(str(error).split())[:300]}"
        ) from error
