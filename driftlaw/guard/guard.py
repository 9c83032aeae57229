"""Guard: watches the updates of one adapter, and undoes, shrinks or stops them when they do harm."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import asdict, fields
from statistics import fmean
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from driftlaw.dense import every_nth_pixel
from driftlaw.errors import DataError, UsageError
from driftlaw.guard.monitors import Check, compare, log_effective_classes, mean_entropy, skew
from driftlaw.guard.settings import GuardSettings
from driftlaw.guard.snapshots import SnapshotFolder
from driftlaw.guard.state import GuardEvent, GuardState
from driftlaw.guard.transaction import TensorCopies, changing_tensors

CHECKS = 4  # checks whose mean decides
RECENT = 8  # steps with which the signals of a step are compared
RISES = 1.25, 1.25, 2.0  # of entropy, 1 / predicted classes, Fisher information; larger ones are followed by a check
FAR = 0.5  # distance of a weight from the source above which checks are more frequent
SOURCE_SAMPLES = 8  # images between two checks while the source model predicts, in samples
EVENTS = 1000  # that are kept
REJECTED = 3  # updates in a row that are undone before the next action
SMALLEST_SCALE = 2.0**-20


class Guard:
    """The guard of one adapter: ``driftlaw.adapt(model, guard=True).guard``.

    Every update is a transaction (``driftlaw.guard.transaction``). Checks compare the adapter with the source model on
    a sample of recent images. The mean of the last four decides.

    Args:
        settings: the settings.

    Attributes:
        scale: factor of all updates; 1 unless there was an alarm.
        mode: ``adapt``, or ``source`` while the source model predicts.
        counts: number of actions by name.
        events: the last 1,000 actions.
        step_events: the actions of the last step.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self.settings = settings
        self.enabled = True  # False while costs are counted
        self.folder = SnapshotFolder(settings.snapshots, settings.keep) if settings.snapshots else None
        self.canary: tuple[Tensor, Tensor] | None = None
        self.base_skew = 0.0
        self.counts: Counter[str] = Counter()
        self.events: deque[GuardEvent] = deque(maxlen=EVENTS)
        self.step_events: list[GuardEvent] = []
        self._clear()

    def _clear(self) -> None:
        self.mode, self.scale = "adapt", 1.0
        self.checks: list[Check] = []  # the last ones
        self.images = self.next_check = self.rejected = self.alarms = self.healthy = 0
        self.recovery = self.settings.recovery
        self.good = TensorCopies()
        self.sample: list[Tensor] = []
        self.logits: list[Tensor] = []
        self.signals: list[Tensor] = []  # of the last steps: entropy, 1 / predicted classes, Fisher information
        self.canary_limit: float | None = None

    def set_canary(self, images: Tensor, labels: Tensor) -> None:
        """Score a few labelled images every ``canary_steps`` steps; too many errors are an alarm.

        Args:
            images: as the adapter receives them.
            labels: (n,), the classes.
        """
        if len(images) != len(labels) or not len(images):
            raise UsageError(f"Expected images and as many labels, found {len(images)} and {len(labels)}.")
        self.canary, self.canary_limit = (images, labels), None

    def calibrate(self, adapter: Any, images: Tensor) -> None:
        """Measure the skew of images from training; from now on it is subtracted from the skew of checks.

        Networks and numbers of classes differ in how much batch statistics change predictions.

        Args:
            adapter: the adapter of the guard.
            images: images of the source domain in random order, as the adapter receives them; half of ``sample`` or
                more.
        """
        size = self.settings.sample
        samples = [one for one in adapter.inputs.to_unit(images, adapter.model).split(size) if 2 * len(one) >= size]
        if not samples:
            raise UsageError(f"Expected at least {-(-size // 2)} images, found {len(images)}.")
        values = [skew(adapter.source_logits(one), adapter.source_logits(one, batch_share=1.0)) for one in samples]
        self.base_skew = fmean(map(float, values))

    # --- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data and tensors; settings and the canary are not part of it."""
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # the signals of the last step may not have arrived
        state = {field.name: getattr(self, field.name) for field in fields(GuardState)}
        plain = {"checks": [list(check) for check in self.checks], "events": [asdict(event) for event in self.events]}
        return state | plain | {"counts": dict(self.counts), "good": dict(self.good.copies)}

    def check_state(self, adapter: Any, state: Any) -> None:
        """Raise if a state is damaged or belongs to another model; nothing changes.

        Args:
            adapter: the adapter of the guard.
            state: what ``state_dict`` returned.
        """
        try:
            given = TypeAdapter(GuardState).validate_python(state)
        except ValidationError:
            given = None
        own = dict(adapter.named_parameters())
        if (
            given is None
            or [len(images) for images in given.sample] != [len(logits) for logits in given.logits]
            or any(value.shape != own[name].shape for name, value in given.good.items() if name in own)
            or not all(value.isfinite().all() for name, value in given.good.items() if name in own)
        ):
            raise UsageError("The state of the guard is damaged. Load a state that was saved earlier.")

    def load_state_dict(self, state: Any) -> None:
        """Continue from what ``state_dict`` returned, after ``check_state``."""
        given = TypeAdapter(GuardState).validate_python(state)
        self._clear()
        vars(self).update({field.name: getattr(given, field.name) for field in fields(GuardState)})
        self.good = TensorCopies()
        self.good.save(given.good)
        self.counts, self.events = Counter(given.counts), deque(given.events, maxlen=EVENTS)

    # --- steps ---------------------------------------------------------------------------------------------------

    def report(self, adapter: Any, action: str, reason: str) -> None:
        """Count an action, keep it, and tell the callbacks that have a method ``on_guard_event``."""
        event = GuardEvent(adapter.steps, action, reason)
        self.counts[action] += 1
        self.events.append(event)
        self.step_events.append(event)
        for callback in tuple(adapter.callbacks):
            if hasattr(callback, "on_guard_event"):
                callback.on_guard_event(adapter, event)

    def note_update(self, adapter: Any, accepted: bool) -> None:
        """Receive whether an update was kept; updates that are undone again and again are made smaller."""
        if accepted:
            self.rejected = 0
            return
        self.rejected += 1
        self.report(adapter, "skip_update", "The update was not finite, or larger than max_update.")
        if self.rejected % REJECTED == 0:
            self._shrink(adapter, f"{self.rejected} updates in a row were undone.")

    def after_step(self, adapter: Any, images: Tensor, logits: Tensor, *, updated: bool) -> None:
        """Check the adapter and save its state, if this is due.

        Args:
            adapter: the adapter.
            images: (n, c, h, w) in [0, 1] of the step.
            logits: (n, classes), or (n, classes, h, w), that the adapter returned for them.
            updated: whether the step was an update; small batches and the source model only predict.
        """
        if not self.enabled or not len(images):
            return
        size, logits = self.settings.sample, every_nth_pixel(logits)
        if len(images) >= size // 2 or (self.sample and self.sample[-1].shape[1:] != images.shape[1:]):
            self.sample, self.logits = [], []
        stride = max(1, len(images) // size)
        self.sample = [*self.sample, images[::stride][:size].detach().clone()]
        self.logits = [*self.logits, logits[::stride][:size].detach().clone()]
        collected = sum(map(len, self.sample))
        self.images += len(images)
        if collected >= size // 2 and (self.images >= self.next_check or self._signals_rose()):
            self._check(adapter)
        if collected >= size // 2:
            self.sample, self.logits = [], []
        information = adapter.fisher.mean() if hasattr(adapter, "fisher") else logits.new_zeros(())
        signals = [mean_entropy(logits), (-log_effective_classes(logits)).exp(), information]
        values = torch.stack([value.double() for value in signals]).to("cpu", non_blocking=True)
        self.signals = [*self.signals[-RECENT - 1 :], values]
        settings = self.settings
        if updated and self.canary and settings.canary_steps and adapter.steps % settings.canary_steps == 0:
            self._score_canary(adapter)
        is_first = adapter.ranks is None or adapter.ranks.rank == 0  # the state of all ranks is the same
        if updated and is_first and self.folder is not None and adapter.steps % settings.snapshot_steps == 0:
            try:
                self.folder.save(adapter.steps, adapter.state_dict())
            except DataError as error:  # of a full disk, which must not end predictions
                adapter._warn_once("snapshot", f"The state was not saved, and predictions continue: {error}")

    def _signals_rose(self) -> bool:
        """Return True if entropy, 1 / predicted classes or Fisher information of the last step rose suddenly.

        They are compared with those of the steps before it, since the last check. The signals of the current step are
        not used, because a GPU may not have computed them yet. Those of earlier steps have arrived: every step waits
        for the check of its images, which comes after them.
        """
        if len(self.signals) < RECENT + 2:
            return False
        values = torch.stack(self.signals)
        values[1:, 2] = values[:, 2].diff()  # Fisher information is accumulated
        *before, last = values[1:]
        return bool((last > torch.tensor(RISES) * torch.stack(before).mean(0)).any())

    def _check(self, adapter: Any) -> None:
        images, logits = torch.cat(self.sample), torch.cat(self.logits)
        stored = adapter.source_logits(images)
        batch = adapter.source_logits(images, batch_share=1.0) if adapter.uses_batch_statistics() else None
        is_weight = [not name.endswith("bias") for name in adapter.trainable_names]  # a bias may be near 0 at first
        distances = adapter.layer_distances()[is_weight]
        check = compare(logits, stored, batch, distances)
        check = check._replace(skew=check.skew - self.base_skew)
        self.checks, self.signals = [*self.checks, check][-CHECKS:], []
        failed = any(map(self._problems, self.checks))
        interval = 0 if failed else min(self.images // 2, self.settings.check_images)
        interval = interval // 4 if check.distance > FAR else interval
        self.next_check = self.images + (SOURCE_SAMPLES * len(images) if self.mode == "source" else interval)
        problems = self._problems(Check(*map(fmean, zip(*self.checks, strict=True)))) if failed else {}
        if self.mode == "source":
            if len(self.checks) == CHECKS and fmean(one.skew for one in self.checks) < 0.6 * self.settings.max_skew:
                self.mode = "adapt"
                self.report(adapter, "batch_statistics", "Recent images have enough classes for batch statistics.")
        elif problems and len(self.checks) == CHECKS:
            self._act(adapter, problems)
        elif not failed:
            self.alarms = 0 if self.healthy >= CHECKS else self.alarms
            self.good.save(adapter.tensors_before_update())  # the checked logits are from before the last update
            self._recover(adapter)

    def _problems(self, check: Check) -> dict[str, str]:
        settings = self.settings
        found = {
            "skew": (check.skew > settings.max_skew, f"skew {check.skew:.2f} > {settings.max_skew}"),
            "agreement": (
                check.agreement < settings.min_agreement,
                f"agreement {check.agreement:.2f} < {settings.min_agreement}",
            ),
            "classes": (check.classes < settings.min_classes, f"classes {check.classes:.2f} < {settings.min_classes}"),
        }
        return {name: text for name, (fails, text) in found.items() if fails}

    def _act(self, adapter: Any, problems: dict[str, str]) -> None:
        """Stop updates if batch statistics are the problem; otherwise shrink them and go back."""
        self.checks = []
        if "skew" in problems:
            self.mode = "source"
            self.report(adapter, "mixed_statistics", problems["skew"])
            self._go_back(adapter, problems["skew"])
            return
        self._alarm(adapter, ", ".join(problems.values()))

    def _alarm(self, adapter: Any, reason: str) -> None:
        self.alarms += 1
        self._shrink(adapter, reason)
        self._go_back(adapter, reason)

    def _go_back(self, adapter: Any, reason: str) -> None:
        """Return to the state of the last check without a problem, or to the source if that did not help."""
        tensors = changing_tensors(adapter)
        if self.alarms <= 1 and self.good.copies:
            self.good.restore(tensors)
            self.report(adapter, "restore_snapshot", reason)
            return
        source = TensorCopies()
        source.copies = adapter._initial_state["tensors"]
        source.restore(tensors)
        self.good = TensorCopies()
        self.report(adapter, "return_to_source", reason)

    def _shrink(self, adapter: Any, reason: str) -> None:
        self.healthy, self.recovery = 0, 2 * self.recovery
        if self.scale > SMALLEST_SCALE:
            self.scale *= self.settings.shrink
            self.report(adapter, "shrink_updates", reason)

    def _recover(self, adapter: Any) -> None:
        self.healthy += 1
        if self.scale < 1 and self.healthy >= self.recovery:
            self.healthy, self.scale = 0, min(1.0, 2 * self.scale)
            self.report(adapter, "grow_updates", f"{self.recovery} checks in a row found no problem.")

    def _score_canary(self, adapter: Any) -> None:
        assert self.canary is not None
        images, labels = self.canary

        def error(logits: Tensor) -> float:
            return float((logits.argmax(1) != labels.to(logits.device)).double().mean())

        if self.canary_limit is None:
            source = adapter.source_logits(adapter.inputs.to_unit(images, adapter.model))
            self.canary_limit = error(source) + self.settings.canary_margin
        found = error(adapter.predict(images, whole=True))
        if found > self.canary_limit:
            self._alarm(adapter, f"error on the canary {found:.2f} > {self.canary_limit:.2f}")
