"""Names of version 0.1 that still work, with a DeprecationWarning, until version 0.3.

``install`` makes old modules importable, ``old_names`` gives a module its old names, and ``renamed_keywords`` lets a
function accept its old keywords. CHANGELOG.md has the migration guide.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from driftlaw.errors import warn_user

P = ParamSpec("P")
R = TypeVar("R")

REMOVED_IN = "0.3"

_MODULES = {
    old: new.split()
    for old, new in (
        line.split(": ")
        for line in """\
adapters: methods
checks: testing
checks.answers: testing.outputs
checks.finding: testing.find_method
checks.kit: testing.checks
checks.states: testing.state
checks.subject: testing.fixtures
contract: base execution
contract.compilation: execution.compile
contract.execution: execution
contract.images: base.inputs
contract.lanes: execution.threads
contract.locks: execution.locks
contract.network: base.model_copy
contract.nouns: base.types
corruptions.apply: corruptions.pipeline
corruptions.catalogue: corruptions.registry
datasets.catalogue: datasets.registry
datasets.folders: datasets.image_folder
datasets.sources: datasets.protocol
export.answering: export.inference_module
export.exporting: export.adapter
export.states: export.state
ingredients: components
ingredients.agreement: components.losses
ingredients.augmentation: components.augment
ingredients.cached: components.cache
ingredients.colours: components.color
ingredients.contrast: components.contrastive
ingredients.discrimination: components.contrastive
ingredients.memory: components.feature_bank
ingredients.normalisation: components.batch_norm
ingredients.precision: execution.precision
ingredients.source_data: components.train_data
ingredients.stand_ins: execution.pass_weights
loop: evaluation
measures: evaluation evaluation.metrics
models.catalogue: models.registry
models.loading: models.load
models.normalise: models.normalize
places: paths
probes: profiling hardware
processor: hardware
records.measures: records.metrics
streams.sources: datasets.torch_dataset""".splitlines()
    )
}
"""Old modules of the package and where their names are now; sub-modules not listed keep their name."""

_NAMES = dict(
    line.split()
    for line in """\
Cell RunSpec
DatasetImages TorchDatasetImages
Exported ExportResult
FeatureMemory FeatureBank
ImageSource ImageDataset
MEASURES METRICS
MadeUpSource SyntheticDataset
Normalise Normalize
Output StepOutput
RecentImages ImageWindow
SmallBatches BatchStatsSettings
SourceData TrainData
StepSettings ExecutionSettings
Still OtherMethod
Subject MethodUnderTest
Workbench RunContext
answering_network extract_model
as_source as_image_dataset
batch_score score
collected combined_error
cross_entropy_between soft_cross_entropy
export_network export_model
follow ema_update
freeze_statistics freeze_batch_stats
learning trainable
let_learn require_grad_
made_once cached
method_facts method_info
own_copy copy_model
own_label_likelihood pseudo_label_nll
restore_some stochastic_restore
step_down minimize_step
take_steps run_batches
takes_batch_statistics uses_batch_stats
unknown unknown_name
unwrapped unwrap_model
use_batch_statistics use_batch_stats""".splitlines()
)
"""Old names and the new ones, whatever their module."""


def _message(old: str, new: str) -> str:
    return f"{old} is deprecated and will be removed in driftlaw {REMOVED_IN}. Use {new} instead."


def old_names(module: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a module, with which it has its old names too."""

    def find(name: str) -> Any:
        new = _NAMES.get(name)
        if new is None or not hasattr(sys.modules[module], new):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        warn_user(_message(f"{module}.{name}", f"{module}.{new}"), DeprecationWarning)
        return getattr(sys.modules[module], new)

    return find


def renamed_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for a function that still accepts old keywords, given as ``old="new"``."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs.keys():
                if names[old] in kwargs:
                    raise TypeError(f"{function.__name__}() got both '{names[old]}' and its old name '{old}'")
                warn_user(_message(f"{function.__name__}({old}=…)", f"{names[old]}=…"), DeprecationWarning)
                kwargs[names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate


class _OldModule(ModuleType):
    """An old module: finds names, renamed or not, in the new modules."""

    def __init__(self, name: str, targets: Sequence[str]) -> None:
        super().__init__(name, f"Deprecated alias of {' and '.join(targets)}.")
        self._targets = [importlib.import_module(target) for target in targets]

    def __getattr__(self, name: str) -> Any:
        for target in self._targets if not name.startswith("__") else ():
            for candidate in (name, _NAMES.get(name, name)):
                if hasattr(target, candidate):
                    return getattr(target, candidate)
        raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")


class _OldModuleFinder(MetaPathFinder, Loader):
    """Finds modules of version 0.1 by their old names."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != "driftlaw" or not self._targets(name):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        targets = self._targets(spec.name.partition(".")[2])
        warnings.warn(_message(spec.name, " or ".join(targets)), DeprecationWarning, stacklevel=2)
        return _OldModule(spec.name, targets)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the new modules are executed when they are imported."""

    def _targets(self, name: str) -> list[str]:
        if name in _MODULES:
            return [f"driftlaw.{target}" for target in _MODULES[name]]
        parent, _, child = name.rpartition(".")
        candidates = [f"driftlaw.{target}.{child}" for target in _MODULES.get(parent, [])]
        return [candidate for candidate in candidates if importlib.util.find_spec(candidate)]


def install() -> None:
    """Make the modules of version 0.1 importable."""
    if not any(isinstance(finder, _OldModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(_OldModuleFinder())
