"""Record of a run in progress: lines, checkpoints and resuming."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import BaseModel, ValidationError
from torch.utils._pytree import tree_map_only

from driftlaw.base import Adapter, Batch
from driftlaw.checkpoints import load_checkpoint, save_checkpoint
from driftlaw.errors import DataError, UsageError, describe_validation
from driftlaw.files import delete_leftovers
from driftlaw.records import RecordWriter, read_record
from driftlaw.records.jsonl import SHA256_KEY, Line, dump_line, read_lines
from driftlaw.records.schema import BatchLine, HeaderLine
from driftlaw.records.writer import hash_lines

NOT_COMPARED = ("timing", "command", "commit", "ranks")  # header fields that may differ when a run is resumed


class RecordMismatchError(UsageError):
    """A record file contains a different run. ``differing`` lists the header fields that differ."""

    def __init__(self, path: Path, differing: list[str], hint: str = "") -> None:
        super().__init__(
            f"{path} contains the record of a different run (differing: {', '.join(differing)}). "
            f"Choose another path for the record, or delete this file.{hint}"
        )
        self.differing = differing
        self._arguments = path, differing, hint

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordMismatchError, self._arguments


class ResumableRecord:
    """Header and batch lines of a run, and the file and checkpoint they are written to.

    If the file has the record of the same run, its lines and the adapter's state are restored from it.

    Args:
        path: JSONL file, or None to keep the lines in memory only.
        header: header of the run that is about to start.
        adapter: adapter whose state is restored and saved.
        device: device of the adapter's model.

    Raises:
        RecordMismatchError: if ``path`` contains the record of a different run.
        DataError: if the record was changed, or the checkpoint is damaged or belongs to another record.
    """

    def __init__(self, path: Path | None, header: Line, adapter: Adapter, device: torch.device) -> None:
        self.path, self.header, self.adapter = path, header, adapter
        self.lines: list[Line] = []
        self.finished = False
        self._writer: RecordWriter | None = None
        self._saved_at = time.monotonic()
        if path is not None and path.exists() and (written := read_lines(path)):
            self._resume(written, device)

    @classmethod
    def on_ranks(cls, path: Path | None, header: Line, adapter: Adapter, device: torch.device) -> Self:
        """Return the record of a run. With a group, rank 0 reads and writes the file, and the others get its state."""
        ranks = adapter.ranks
        if ranks is None:
            return cls(path, header, adapter, device)
        own = cls(None, header, adapter, device)

        def resume() -> tuple[Any, ...]:
            nonlocal own
            own = cls(path, header, adapter, device)
            state = tree_map_only(torch.Tensor, torch.Tensor.cpu, adapter.state_dict()) if own.lines else None
            return own.header, own.lines, own.finished, state

        own.header, own.lines, own.finished, state = ranks.on_first(resume)
        if state is not None and ranks.rank:
            adapter.load_state_dict(state)
        return own

    @property
    def checkpoint(self) -> Path:
        """File with the adapter's state; it exists only while the run is unfinished."""
        assert self.path is not None
        return self.path.with_name(self.path.name + ".checkpoint.pt")

    def _resume(self, written: list[Line], device: torch.device) -> None:
        ours, theirs = _compared(self.header), _compared(written[0])
        if ours != theirs:
            assert self.path is not None
            differing = [key for key in ours | theirs if ours.get(key) != theirs.get(key)]
            streams = (header.get("stream") for header in (ours, theirs))
            first, other = (each.get("first_batch_sha256") if isinstance(each, dict) else None for each in streams)
            hint = " The first batch differs: a run can be resumed only if the loader does not shuffle."
            raise RecordMismatchError(self.path, differing, hint if first != other else "")
        assert self.path is not None
        record = read_record(self.path)  # notices changed lines
        self.finished = record.finished
        if not self.finished and self.checkpoint.exists():
            state = load_checkpoint(self.checkpoint, device)
            batches, adapter, stated = (state.get(key) for key in ("batches", "adapter", "record_sha256"))
            if not isinstance(batches, int) or batches < 1 or not isinstance(adapter, dict):
                raise DataError(f"{self.checkpoint} is not the checkpoint of a run. Delete it to start again.")
            if len(record.batches) >= batches:
                if stated not in (None, hash_lines(self.path, 1 + batches)[1].hexdigest()):
                    raise DataError(
                        f"{self.checkpoint} does not belong to {self.path}: the lines of the first {batches} batches "
                        "differ from those it was written after. Restore the record, or delete both files to start "
                        "again."
                    )
                self.adapter.load_state_dict(adapter)
                self.header, self.lines = record.header, record.batches[:batches]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Context manager in which lines are written to the file."""
        if self.path is None:
            yield
            return
        with RecordWriter(self.path, keep_lines=1 + len(self.lines) if self.lines else 0) as self._writer:
            delete_leftovers(self.checkpoint)
            if not self.lines:
                self.checkpoint.unlink(missing_ok=True)  # of another run
                self._write(HeaderLine, self.header)
            yield

    def read_batches(
        self, batches: Iterable[Batch], pending_interrupt: Callable[[], BaseException | None]
    ) -> Generator[Batch, None, None]:
        """Yield batches; raise the interrupt if reading fails after it, because Ctrl-C ends workers of a DataLoader.

        If reading fails without an interrupt, a checkpoint is saved, so that no batch is evaluated again.
        """
        try:
            yield from batches
        except Exception:
            if interrupt := pending_interrupt():
                raise interrupt from None
            self.save_if_due(0.0)
            raise

    def append(self, line: Line) -> None:
        """Add the line of a batch."""
        self.lines.append(line)
        self._write(BatchLine, line)

    def _write(self, kind: type[BaseModel], line: Line) -> None:
        """Write a line after checking that ``read_record`` will accept it."""
        if self._writer is None:
            return
        try:
            kind.model_validate_json(dump_line(line))
        except ValidationError as error:
            raise UsageError(
                f"The run cannot be recorded: {describe_validation(error)}. Check recipe() and the domains of the "
                "stream, and the labels of the method's diagnostics."
            ) from error
        self._writer.write(line)

    def save_if_due(self, checkpoint_seconds: float) -> None:
        """Write a checkpoint if there are lines and the last one is at least ``checkpoint_seconds`` old."""
        if self._writer is not None and self.lines and time.monotonic() - self._saved_at >= checkpoint_seconds:
            self._writer.sync()
            state = {"batches": len(self.lines), "record_sha256": self._writer.digest.hexdigest()}
            save_checkpoint(state | {"adapter": self.adapter.state_dict()}, self.checkpoint)
            self._saved_at = time.monotonic()

    def finish(self, closing: Line) -> None:
        """Write the closing line, with the sha256 of the record, and delete the checkpoint."""
        if self._writer is not None:
            digest = self._writer.digest.copy()
            digest.update(dump_line(closing))
            closing["timing"][SHA256_KEY] = digest.hexdigest()
            self._writer.write(closing)
            self.checkpoint.unlink(missing_ok=True)


def _compared(header: Mapping[str, Any]) -> Line:
    return {key: value for key, value in header.items() if key not in NOT_COMPARED}
