"""Callbacks for ``Adapter.add_callback``: they write the diagnostics of steps to TensorBoard or to a CSV file."""

import csv
from pathlib import Path

from driftlaw.base import Adapter, Callback, StepOutput
from driftlaw.base.diagnostics import diagnostics_to_json
from driftlaw.errors import UsageError
from driftlaw.files import writable_folder

__all__ = ["Callback", "CsvWriter", "TensorBoardWriter", "scalars"]


def scalars(adapter: Adapter, output: StepOutput) -> dict[str, float]:
    """Return the diagnostics of a step as plain numbers, as most loggers expect them. On a GPU this waits for the step.

    Entries of a vector are called ``name/label``, such as ``layer_distance/conv.weight`` or ``class_shares/3``. Values
    that are not finite are left out.
    """
    labels = {"layer_distance": adapter.trainable_names} | adapter.diagnostic_labels()
    result: dict[str, float | None] = {}
    for name, value in diagnostics_to_json(output.diagnostics).items():
        if isinstance(value, list):
            entries = zip(labels.get(name) or range(len(value)), value, strict=True)
            result |= {f"{name}/{label}": entry for label, entry in entries}
        else:
            result[name] = value
    return {name: value for name, value in result.items() if value is not None}


class CsvWriter:
    """Writes one row per step to a CSV file: ``step``, ``images``, and one column per number of ``scalars``.

    An existing file is replaced. Rows are written at once. The first row decides the columns, so set
    ``adapter.monitor`` before it. Steps that are not measured have empty cells. A batch that is too small for an update
    has the number of the step before it.

    Args:
        path: the file.
    """

    def __init__(self, path: str | Path) -> None:
        writable_folder(Path(path).parent)
        self._file = open(path, "w", newline="", encoding="utf-8", buffering=1)  # noqa: SIM115 (close() closes it)
        self._rows: csv.DictWriter[str] | None = None

    def on_step(self, adapter: Adapter, output: StepOutput) -> None:
        """Write the row of a step."""
        row = {"step": adapter.steps, "images": len(output.logits), **scalars(adapter, output)}
        if self._rows is None:
            layers = [f"layer_distance/{name}" for name in adapter.trainable_names]
            measured = ["source_agreement", *layers] if adapter.monitor.every else []
            self._rows = csv.DictWriter(self._file, list(dict.fromkeys([*row, *measured])), extrasaction="ignore")
            self._rows.writeheader()
        self._rows.writerow(row)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardWriter:
    """Writes a chart per number of ``scalars`` for TensorBoard; ``tensorboard --logdir log_dir`` shows them.

    Single numbers are in the group ``adaptation``. Each vector has a group of its own.

    Args:
        log_dir: directory of the run.
        every: number of steps from one point of a chart to the next. The first step is written. Batches that are only
            predicted, because they are too small for an update, are not.
    """

    def __init__(self, log_dir: str | Path, every: int = 1) -> None:
        if every < 1:
            raise UsageError(f"every={every}: expected at least 1.")
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UsageError(
                f"TensorBoardWriter needs tensorboard ({error}). Install it: pip install 'driftlaw[tensorboard]'"
            ) from error
        self._every, self._last, self._writer = every, 0, SummaryWriter(str(log_dir), flush_secs=10)

    def on_step(self, adapter: Adapter, output: StepOutput) -> None:
        """Add a point to every chart, if the step is to be written."""
        if adapter.steps != self._last and (adapter.steps - 1) % self._every == 0:
            for name, value in scalars(adapter, output).items():
                self._writer.add_scalar(name if "/" in name else f"adaptation/{name}", value, adapter.steps)
        self._last = adapter.steps

    def close(self) -> None:
        """Write what is pending and close the file."""
        self._writer.close()
