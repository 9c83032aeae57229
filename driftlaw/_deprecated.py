"""Names of version 0.1 that still work, with a DeprecationWarning, until version 0.3.

``install`` makes old modules importable, ``add_old_names`` gives a module its old names, and ``renamed_keywords`` lets
a function accept its old keywords. CHANGELOG.md has the migration guide.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from driftlaw.errors import warn_user

P = ParamSpec("P")
R = TypeVar("R")

REMOVED_IN = "0.3"


def _table(text: str) -> dict[str, str]:
    return dict(pair.split(":") for pair in text.split())


_MODULES = _table("""
adapters:methods checks:testing checks.subject:testing.fixtures contract:base,execution contract.execution:execution
contract.nouns:base.types corruptions.apply:corruptions.pipeline corruptions.catalogue:corruptions.registry
corruptions.draws:corruptions.rng datasets.batches:datasets.cifar datasets.catalogue:datasets.registry
datasets.downloads:datasets.download datasets.fetching:datasets.download
datasets.folder_archives:datasets.folder_archive datasets.folders:datasets.image_folder
datasets.pictures:datasets.image_files datasets.sources:datasets.protocol ingredients:components
ingredients.agreement:components.losses ingredients.augmentation:components.augment
ingredients.contrast:components.contrastive ingredients.discrimination:components.contrastive
ingredients.memory:components.feature_bank ingredients.normalisation:components.batch_norm
ingredients.source_data:components.train_data loop:evaluation measures:evaluation,evaluation.metrics
models.catalogue:models.registry models.folding:models.fold_batch_norm models.foreign:models.checkpoint_formats
models.libraries:models.hub models.loading:models.load models.normalise:models.normalize places:paths
probes:profiling,hardware processor:hardware records.measures:records.metrics reports.comparison:reports.published
reports.measures:reports.columns reports.paper:reports.published streams.orders:streams.ordering
streams.pixels:streams.image_cache streams.sources:datasets.torch_dataset
""")
"""Old modules of the package, and the modules that now have their names. Other sub-modules keep their name."""

_NAMES = _table("""
ArchiveSource:ArchiveDataset Cell:RunSpec DatasetImages:TorchDatasetImages Exported:ExportResult
FeatureMemory:FeatureBank ImageSource:ImageDataset NORMALISATIONS:NORMALIZATIONS Normalise:Normalize Output:StepOutput
RecentImages:ImageWindow SmallBatches:BatchStatsSettings SourceData:TrainData StepSettings:ExecutionSettings
Subject:MethodUnderTest Table:ResultTable Workbench:RunContext
a_batch_of_one_works_or_is_refused:single_image_works_or_is_rejected
a_deep_copy_goes_its_own_way:deepcopy_is_independent
a_model_without_norm_layers_works_or_is_refused:model_without_norm_layers_works_or_is_rejected
a_run_gives_the_same_record_twice:run_is_reproducible another_methods_state_is_refused:rejects_state_of_other_method
answering_network:extract_model answers_have_the_right_shape_and_are_finite:logits_and_diagnostics_are_valid
as_source:as_image_dataset can_train_in_bf16:supports_bf16 cross_entropy_between:soft_cross_entropy
export_network:export_model float64_models_work:supports_float64 follow:ema_update
input_and_the_callers_model_stay_as_they_were:input_and_model_are_unchanged it_says_what_it_is:declares_metadata
learning:trainable let_learn:require_grad_ make_normalise:make_normalize method_facts:method_info
modes_around_it_change_nothing:independent_of_grad_and_train_mode no_stale_gradient_is_left_behind:leaves_no_gradients
only_what_it_says_learns_has_moved:updates_only_declared_parameters
other_settings_are_warned_about:warns_about_different_settings own_label_likelihood:pseudo_label_nll
predict_changes_nothing:predict_has_no_side_effects reset_equals_fresh:reset_restores_initial_state
restore_some:stochastic_restore saving_and_loading_changes_nothing:save_and_load_continue_exactly
step_down:minimize_step the_global_random_state_is_not_touched:global_rng_is_untouched
the_seed_alone_decides:seed_determines_result the_state_does_not_grow:state_size_is_constant
use_batch_statistics:use_batch_stats wrong_input_is_refused_and_changes_nothing:rejects_invalid_input
""")
"""Old names of public functions, classes and conformance checks, and the new ones, in whatever module."""


def new_name(name: str) -> str:
    """Return the new name of something that was renamed, or the name itself."""
    return _NAMES.get(name, name)


def _message(old: str, new: str) -> str:
    return f"{old} is deprecated and will be removed in driftlaw {REMOVED_IN}. Use {new} instead."


def add_old_names(module: str, targets: Sequence[str] = ()) -> None:
    """Let a module have its old names, or the old and new names of the modules that replace it."""

    def find(name: str) -> Any:
        for target in targets or [module]:
            for candidate in (name, new_name(name)):
                if candidate in vars(sys.modules[target]) and not name.startswith("__"):
                    if not targets:
                        warn_user(_message(f"{module}.{name}", f"{module}.{candidate}"), DeprecationWarning)
                    return vars(sys.modules[target])[candidate]
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    vars(sys.modules[module])["__getattr__"] = find  # not an assignment, after which mypy would accept any name


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


class _OldModules(MetaPathFinder, Loader):
    """Finds modules of version 0.1 by their old names."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        parent, _, child = name.rpartition(".")
        if package != "driftlaw" or not (name in _MODULES or parent in _MODULES):
            return None
        targets = [f"driftlaw.{module}" for module in _MODULES.get(name, _MODULES.get(parent, "")).split(",")]
        if name not in _MODULES:  # a sub-module that kept its name
            targets = [f"{module}.{child}" for module in targets if find_spec(f"{module}.{child}")]
        return ModuleSpec(fullname, self, is_package=True, loader_state=targets) if targets else None

    def exec_module(self, module: ModuleType) -> None:
        """Warn, and import the modules that have the names now."""
        targets: list[str] = module.__spec__.loader_state if module.__spec__ else []
        warnings.warn(_message(module.__name__, " or ".join(targets)), DeprecationWarning, stacklevel=2)
        for target in targets:
            import_module(target)
        add_old_names(module.__name__, targets)


def install() -> None:
    """Make the modules of version 0.1 importable."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())
