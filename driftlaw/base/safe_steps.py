"""Steps that keep images without a finite prediction out, and steps under a guard."""

import torch
from torch import Tensor

from driftlaw.base.inputs import HEADING, InputConverter
from driftlaw.base.monitoring import MonitoredState
from driftlaw.base.outputs import check_probabilities
from driftlaw.base.steps import AdapterSteps, NotFiniteError
from driftlaw.base.types import StepOutput
from driftlaw.errors import combined_error
from driftlaw.guard import Guard, GuardSettings, Transaction
from driftlaw.guard.monitors import mean_entropy
from driftlaw.guard.transaction import PendingFlags

CONSTANT = 1.5 / 255  # an image whose channels vary by at most one grey level has no information
MIXED_SHARE = 0.2  # of a skewed batch in mixed statistics; chosen on the held-out corruptions


class SafeSteps(AdapterSteps, MonitoredState):
    """Steps in which one image cannot spoil the predictions of the others, or of later batches."""

    inputs: InputConverter

    def start_guard(self) -> None:
        """Create the guard if the settings ask for it, and what undoes updates; called at construction."""
        given = getattr(self.config, "guard", False)
        settings = given if isinstance(given, GuardSettings) else GuardSettings()
        self.guard = Guard(settings) if given else None
        self._transaction = Transaction(settings.max_update if given else None)
        self._updates = PendingFlags()

    def safe_step(self, images: Tensor) -> StepOutput:
        """Predict images in [0, 1] and update the model; images without finite logits are left out of the batch.

        The source model with its stored statistics finds these images, because it predicts every image on its own.
        """
        steps = self.steps
        with torch.inference_mode(False), torch.enable_grad():
            images = images.clone() if images.is_inference() else images.detach()
            try:
                output = self._attempt(images)
            except NotFiniteError:
                return self._step_without_bad_images(images)
        self._read_updates()
        if not isinstance(output, StepOutput):  # a user's method may return something else
            return output
        if steps == 0 < self.steps:
            check_probabilities(self, output.logits)
        return self.finish_step(images, output, updated=self.steps > steps)

    def _step_without_bad_images(self, images: Tensor) -> StepOutput:
        source = self.source_logits(images)
        usable = source.isfinite().flatten(1).all(1)
        self._warn_once(
            "not finite",
            f"The model returned NaN or infinite logits for {len(images) - int(usable.sum())} of {len(images)} images. "
            "They were left out of the update. Check these images."
            if not usable.all()
            else "The adapted model returned NaN or infinite logits. The source model predicted the batch, and the "
            "update was undone. Check the learning rate, or call adapter.reset().",
        )
        if usable.all() or not usable.any():
            return self.finish_step(images, StepOutput(source), updated=False)
        output, logits = self.safe_step(images[usable]), torch.full_like(source, torch.nan)
        logits[usable] = output.logits.to(logits.dtype)
        return StepOutput(logits, output.diagnostics)

    def _read_updates(self) -> None:
        for kept in self._updates.take(wait=self.ranks is not None):
            if self.guard is not None:
                self.guard.note_update(self, kept)
            elif not kept:
                self._warn_once(
                    "undone",
                    "An update was not finite and was undone. Check the images and the learning rate.",
                )

    def guarded_step(self, images: Tensor) -> StepOutput:
        """Predict a batch under the guard: bad images get NaN logits, constant ones are predicted by the source model.

        Both are left out of the batch that the method receives.
        """
        assert self.guard is not None
        guard, model = self.guard, self.model
        guard.step_events = []
        unit = self.inputs.to_unit(images, model, check_values=False)
        low, high = unit.detach().flatten(2).amin(2), unit.detach().flatten(2).amax(2)
        varies = (high - low > CONSTANT).any(1)
        in_range, varies = torch.stack([self.inputs.usable(images.detach(), model), varies]).cpu()
        usable, constant = in_range & varies, in_range & ~varies
        bad = len(images) - int(in_range.sum())
        if bad == len(images) and not guard.images:
            self.inputs.to_unit(images, model)  # raises an error that says what is wrong with all images
        if bad and guard.settings.bad_images == "raise":
            raise combined_error(HEADING, [f"{bad} of {len(images)} images have pixels that are NaN or out of range"])
        if bad or constant.any():
            what = f"{bad} bad and {int(constant.sum())} constant images of {len(images)} were left out."
            guard.report(self, "skip_image", what)
        if usable.all():
            return self._guarded_batch(unit)
        unit = torch.where(in_range.to(unit.device).view(-1, 1, 1, 1), unit, 0)
        logits = self.source_logits(unit)
        logits[~in_range] = torch.nan
        if not usable.any():
            return self.finish_step(unit, StepOutput(logits), updated=False)
        output = self._guarded_batch(unit[usable])
        logits[usable] = output.logits.to(logits.dtype)
        return StepOutput(logits, output.diagnostics)

    def _guarded_batch(self, images: Tensor) -> StepOutput:
        assert self.guard is not None
        steps = self.steps
        if self.guard.mode == "source":
            logits = self.source_logits(images)
            if self.uses_batch_statistics():
                mixed = self.source_logits(images, batch_share=MIXED_SHARE)
                logits = torch.where(mean_entropy(mixed) < mean_entropy(logits), mixed, logits)
            output = self.finish_step(images, StepOutput(logits), updated=False)
        else:
            output = self.safe_step(images)
        finite = output.logits.isfinite().flatten(1).all(1) if output.logits.device.type == "cpu" else slice(None)
        with torch.inference_mode(False), torch.no_grad():
            self.guard.after_step(self, images[finite], output.logits[finite], updated=self.steps > steps)
        return output
