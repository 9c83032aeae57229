"""Execution plan of an experiment: which runs are finished, reusable, to run, or skipped because data is missing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from driftlaw.errors import UsageError, combined_error
from driftlaw.experiments.assets import AssetInventory, embedded_fallback, has_fallback, with_model
from driftlaw.experiments.paper import unique_specs
from driftlaw.experiments.run_spec import RunSpec, resolve_weights
from driftlaw.files import atomic_path
from driftlaw.records import read_record

MAX_PROBLEMS = 5  # of one kind in one message


@dataclass(frozen=True)
class FinishedRecord:
    """Path of a finished record, and the sha256 of the weights it was made with."""

    path: Path
    weights_sha256: str


@dataclass
class ExecutionPlan:
    """What remains to be done for the runs of an experiment.

    Attributes:
        specs: all runs, with fallbacks in place of the runs they replace.
        finished: finished records, by the path a run would write to.
        reusable: records of the same runs in the folders of other experiments, by the same path.
        to_run: runs without a record whose data and weights are available.
        skipped: other runs without a record, each with the reason.
        fallbacks: one message for every benchmark that the embedded model and images replace.
    """

    specs: list[RunSpec] = field(default_factory=list)
    finished: dict[Path, FinishedRecord] = field(default_factory=dict)
    reusable: dict[Path, FinishedRecord] = field(default_factory=dict)
    to_run: list[RunSpec] = field(default_factory=list)
    skipped: list[tuple[RunSpec, str]] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)

    def skipped_by_reason(self) -> dict[str, list[RunSpec]]:
        """Return the skipped runs grouped by reason."""
        grouped: dict[str, list[RunSpec]] = {}
        for spec, reason in self.skipped:
            grouped.setdefault(reason, []).append(spec)
        return grouped


def plan_execution(
    specs: Sequence[RunSpec],
    out: Path,
    inventory: AssetInventory,
    *,
    model: str | None = None,
    overwrite: bool = False,
) -> ExecutionPlan:
    """Return the execution plan of some runs. Nothing is written.

    If a benchmark has no record and none of its runs is possible, the embedded model and images replace it, provided
    that they are of the same dataset.

    Args:
        specs: runs of one experiment.
        out: folder with the records of all experiments.
        inventory: available assets.
        model: weights to use in all runs. They must be available.
        overwrite: ignore existing records.
    """
    if model is not None:
        if problem := inventory.model(resolve_weights(model)).problem:
            raise UsageError(f"--model {model}: {problem}")  # no fallback for what the user named
        specs = unique_specs(with_model(specs, model, inventory))
    plan = ExecutionPlan()
    for preset in dict.fromkeys(spec.preset for spec in specs):
        group = [spec for spec in specs if spec.preset == preset]
        records = {} if overwrite else _find_records(group, out)
        if model is None and not records and all(has_fallback(spec) and inventory.problems(spec) for spec in group):
            plan.fallbacks.append(
                f"{preset} cannot be run here. {' '.join(inventory.problems(group[0]))} The embedded model and images "
                "are used instead; the errors cannot be compared with the paper's."
            )
            group = unique_specs(embedded_fallback(spec) for spec in group if not spec.tuned)
            records = {} if overwrite else _find_records(group, out)
        for spec in group:
            _add(plan, spec, records.get(spec.record_path(out)), out, inventory)
    _check_weights(plan, out, inventory)
    return plan


def _add(
    plan: ExecutionPlan, spec: RunSpec, record: FinishedRecord | None, out: Path, inventory: AssetInventory
) -> None:
    path = spec.record_path(out)
    plan.specs.append(spec)
    if record is not None:
        (plan.finished if record.path.parent == path.parent else plan.reusable)[path] = record
    elif problems := inventory.all_problems(spec):
        plan.skipped.append((spec, " ".join(problems)))
    else:
        plan.to_run.append(spec)


def _find_records(specs: Sequence[RunSpec], out: Path) -> dict[Path, FinishedRecord]:
    """Return the finished record of each run that has one: its own, else that of another experiment."""
    records = {}
    for spec in specs:
        own = spec.record_candidates(out)
        names = {path.name for path in own}
        others = [path for path in sorted(out.glob(f"*/{spec.preset}/{spec.file_name}*")) if path.name in names]
        for path in [*own, *others]:
            if path.exists() and path.stat().st_size and (record := read_record(path)).finished:
                sha256 = str(record.header["model"].get("sha256", ""))
                records[spec.record_path(out)] = FinishedRecord(path, sha256)
                break
    return records


def _check_weights(plan: ExecutionPlan, out: Path, inventory: AssetInventory) -> None:
    """Raise an error if finished records were made with other weights of the same name."""
    records, problems = plan.finished | plan.reusable, []
    for spec in plan.specs:
        record, ours = records.get(spec.record_path(out)), inventory.model(spec.model["weights"]).sha256
        if record and ours and record.weights_sha256 != ours:
            problems.append(f"{record.path}: {record.weights_sha256[:8]}, now {ours[:8]}")
    if problems:
        more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        heading = (
            "These records were made with other weights of the same name. Pass --overwrite to replace them, or choose "
            "another --out:"
        )
        raise combined_error(heading, problems[:MAX_PROBLEMS] + more)


def copy_reusable_records(plan: ExecutionPlan) -> None:
    """Copy the reusable records of other experiments, so that the folder of this experiment is complete."""
    for path, record in plan.reusable.items():
        target = path.with_name(record.path.name)
        with atomic_path(target) as temporary:
            shutil.copyfile(record.path, temporary)
        plan.finished[path] = replace(record, path=target)
    plan.reusable.clear()
