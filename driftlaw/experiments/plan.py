"""Execution plan of an experiment: which runs are finished, reusable, to run, or skipped because data is missing."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from driftlaw.errors import UsageError, combined_error
from driftlaw.experiments.assets import AssetInventory
from driftlaw.experiments.paper import unique_specs
from driftlaw.experiments.run_spec import EMBEDDED, RunSpec, resolve_weights
from driftlaw.files import atomic_path
from driftlaw.records import RunRecord

FALLBACK_FOR = "cifar10"  # the embedded images are CIFAR-10 test images, and the embedded model has its classes
MAX_PROBLEMS = 5  # of one kind in one message


@dataclass
class PlannedRun:
    """A run of an experiment and what is known about it.

    Attributes:
        spec: the run.
        target: path the run writes its record to.
        record: its finished record, which may be in the folder of another experiment. None if there is none.
        problem: why it cannot be executed. Empty if it is finished or possible.
    """

    spec: RunSpec
    target: Path
    record: RunRecord | None = None
    problem: str = ""

    @property
    def state(self) -> Literal["finished", "reusable", "skipped", "to run"]:
        """``reusable`` means that the record of the same run is in the folder of another experiment."""
        if self.record is not None and self.record.path is not None:
            return "finished" if self.record.path.parent == self.target.parent else "reusable"
        return "skipped" if self.problem else "to run"


@dataclass
class ExecutionPlan:
    """What remains to be done for the runs of an experiment.

    Attributes:
        runs: all runs, with fallbacks in place of the runs they replace.
        fallbacks: one message for every benchmark that the embedded model and images replace.
    """

    runs: list[PlannedRun] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)

    def specs(self, state: str) -> list[RunSpec]:
        """Return the runs that are in a state."""
        return [run.spec for run in self.runs if run.state == state]

    def skipped_by_reason(self) -> dict[str, list[RunSpec]]:
        """Return the skipped runs grouped by reason."""
        grouped: dict[str, list[RunSpec]] = {}
        for run in self.runs:
            if run.state == "skipped":
                grouped.setdefault(run.problem, []).append(run.spec)
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
        weights = resolve_weights(model)
        if problem := inventory.model(weights).problem:
            raise UsageError(f"--network {model}: {problem}")  # no fallback for what the user named
        changed = []
        for spec in specs:
            missing = has_fallback(spec) and bool(inventory.stream(spec).problem)
            changed.append(spec.with_weights(weights, embedded_images=missing))
        specs = unique_specs(changed)

    def planned(specs: Sequence[RunSpec]) -> list[PlannedRun]:
        runs = []
        for spec in specs:
            record = None if overwrite else spec.finished_record(out, other_experiments=True)
            problem = "" if record else " ".join(inventory.all_problems(spec))
            runs.append(PlannedRun(spec, spec.record_path(out), record, problem))
        return runs

    plan = ExecutionPlan()
    for preset in dict.fromkeys(spec.preset for spec in specs):
        group = [spec for spec in specs if spec.preset == preset]
        runs = planned(group)
        replaceable = model is None and not any(run.record for run in runs)
        if replaceable and all(has_fallback(spec) and inventory.problems(spec) for spec in group):
            plan.fallbacks.append(
                f"{preset} cannot be run here. {' '.join(inventory.problems(group[0]))} The embedded model and images "
                "are used instead; the errors cannot be compared with the paper's."
            )
            runs = planned(unique_specs(embedded_fallback(spec) for spec in group if not spec.tuned))
        plan.runs += runs
    _check_weights(plan, inventory)
    return plan


def has_fallback(spec: RunSpec) -> bool:
    """Return True if the embedded images and model may replace those of a run."""
    return spec.stream["dataset"] == FALLBACK_FOR and not spec.stream.get("archive")


def embedded_fallback(spec: RunSpec) -> RunSpec:
    """Return the run on the embedded images and the embedded model, under the preset name ``embedded``."""
    return spec.with_weights(resolve_weights(EMBEDDED), embedded_images=True)


def _check_weights(plan: ExecutionPlan, inventory: AssetInventory) -> None:
    """Raise an error if finished records were made with other weights of the same name."""
    problems = []
    for run in plan.runs:
        ours = inventory.model(run.spec.model["weights"]).sha256
        if run.record and ours and (theirs := str(run.record.header["model"].get("sha256", ""))) != ours:
            problems.append(f"{run.record.path}: {theirs[:8]}, now {ours[:8]}")
    if problems:
        more = [f"and {len(problems) - MAX_PROBLEMS} more"] if len(problems) > MAX_PROBLEMS else []
        heading = (
            "These records were made with other weights of the same name. Pass --overwrite to replace them, or choose "
            "another --out:"
        )
        raise combined_error(heading, problems[:MAX_PROBLEMS] + more)


def copy_reusable_records(plan: ExecutionPlan) -> None:
    """Copy the reusable records of other experiments, so that the folder of this experiment is complete."""
    for run in plan.runs:
        if run.state == "reusable" and run.record and run.record.path:
            target = run.target.with_name(run.record.path.name)
            with atomic_path(target) as temporary:
                shutil.copyfile(run.record.path, temporary)
            run.record = replace(run.record, path=target)
