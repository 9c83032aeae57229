"""Old modules, names and keywords work with a DeprecationWarning."""

import importlib
import subprocess
import sys

import pytest

import driftlaw
from driftlaw import _deprecated
from driftlaw._deprecated import renamed_keywords
from driftlaw.base import Adapter
from driftlaw.errors import UsageError
from driftlaw.testing import CHECKS


@pytest.fixture(autouse=True)
def _forget_old_modules():
    yield
    loaders = {name: getattr(module, "__loader__", None) for name, module in sys.modules.items()}
    for name in [name for name, loader in loaders.items() if isinstance(loader, _deprecated._OldModules)]:
        del sys.modules[name]


@pytest.mark.parametrize("old", sorted(_deprecated._MODULES))
def test_old_module_can_be_imported(old):
    with pytest.warns(DeprecationWarning, match=rf"driftlaw\.{old} is deprecated and will be removed in driftlaw 0\.3"):
        importlib.import_module(f"driftlaw.{old}")


@pytest.mark.parametrize(
    ("module", "old", "new_module", "new"),
    [
        ("contract", "Adapter", "base", "Adapter"),
        ("contract", "Output", "base", "StepOutput"),
        ("contract", "SmallBatches", "base", "BatchStatsSettings"),
        ("contract", "StepSettings", "base", "ExecutionSettings"),
        ("contract.nouns", "Output", "base", "StepOutput"),
        ("contract.small_batches", "SmallBatches", "base", "BatchStatsSettings"),
        ("ingredients.losses", "entropy", "components.losses", "entropy"),
        ("ingredients.source_data", "SourceData", "components.train_data", "TrainData"),
        ("adapters", "method_facts", "methods", "method_info"),
        ("adapters.law", "Law", "methods.law", "Law"),
        ("checks", "check_method", "testing", "check_method"),
        ("checks.subject", "Subject", "testing.fixtures", "MethodUnderTest"),
        ("loop", "run", "evaluation", "run"),
        ("places", "data_dir", "paths", "data_dir"),
        ("probes", "pick_device", "hardware", "pick_device"),
        ("probes", "can_train_in_bf16", "hardware", "supports_bf16"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_name_is_the_new_object(module, old, new_module, new):
    expected = getattr(importlib.import_module(f"driftlaw.{new_module}"), new)
    assert getattr(importlib.import_module(f"driftlaw.{module}"), old) is expected


def test_warning_points_at_the_users_line(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import driftlaw\nfrom driftlaw.contract import Output\nprint(Output.__name__)\n")
    done = subprocess.run(
        [sys.executable, "-W", "always::DeprecationWarning:__main__", str(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "StepOutput\n"
    assert "script.py:2: DeprecationWarning: driftlaw.contract is deprecated" in done.stderr


def test_unknown_modules_and_names_are_still_errors():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("driftlaw.nothing")
    with pytest.warns(DeprecationWarning, match="driftlaw.contract"), pytest.raises(ModuleNotFoundError):
        importlib.import_module("driftlaw.contract.nothing")
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        importlib.import_module("driftlaw.contract").Nothing  # noqa: B018


@pytest.mark.parametrize(
    ("package", "old", "new"),
    [
        ("export", "Exported", "ExportResult"),
        ("models", "Normalise", "Normalize"),
        ("datasets", "ImageSource", "ImageDataset"),
        ("streams", "DatasetImages", "TorchDatasetImages"),
        ("experiments", "Cell", "RunSpec"),
        ("experiments", "Workbench", "RunContext"),
        ("reports", "Table", "ResultTable"),
    ],
)
def test_package_has_its_old_names(package, old, new):
    module = importlib.import_module(f"driftlaw.{package}")
    with pytest.warns(DeprecationWarning, match=rf"driftlaw\.{package}\.{old} is deprecated"):
        assert getattr(module, old) is getattr(module, new)


def test_package_has_no_old_names_of_others():
    export = importlib.import_module("driftlaw.export")
    with pytest.raises(AttributeError, match=r"'driftlaw\.export' has no attribute 'Output'"):
        _ = export.Output


def test_old_keywords_are_passed_on_under_their_new_name():
    @renamed_keywords(source="train_data")
    def adapt(model, *, train_data=None):
        return model, train_data

    with pytest.warns(DeprecationWarning, match=r"adapt\(source=…\) is deprecated.*Use train_data=… instead"):
        assert adapt(1, source=2) == (1, 2)
    with pytest.raises(TypeError, match="both 'train_data' and its old name 'source'"):
        adapt(1, source=2, train_data=3)


def test_public_functions_accept_their_old_keywords(tmp_path):
    with pytest.warns(DeprecationWarning, match="normalise"):
        model = driftlaw.load_model("wrn_16_1-cifar10", normalise=None)
    with pytest.warns(DeprecationWarning, match="source"):
        adapter = driftlaw.adapt(model, "source", source=None)
    with pytest.warns(DeprecationWarning, match="sink"):
        record = driftlaw.run(driftlaw.make_stream("embedded", limit=20), adapter, sink=tmp_path / "run.jsonl")
    assert record.finished
    assert (tmp_path / "run.jsonl").is_file()


def test_old_names_of_checks_lead_to_checks():
    checks = {check.__name__ for check in CHECKS}
    assert len(checks & set(_deprecated._NAMES.values())) == len(checks) - 1  # predicts_before_update is new


def test_method_with_hooks_of_version_0_1_is_rejected():
    with pytest.raises(UsageError, match=r"prepare -> configure, adapt -> draw and update.*CHANGELOG\.md"):

        class OldMethod(Adapter):
            def prepare(self, model):
                return model

            def adapt(self, images):
                return None
