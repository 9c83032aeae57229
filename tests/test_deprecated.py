"""Old public names and keywords work with a DeprecationWarning."""

import importlib

import pytest

import driftlaw
from driftlaw._deprecated import NEW_NAMES, renamed_keywords

PACKAGES = ["datasets", "experiments", "export", "models", "reports", "streams"]


def test_every_old_name_belongs_to_a_package():
    packages = [importlib.import_module(f"driftlaw.{name}") for name in PACKAGES]
    assert [new for new in NEW_NAMES.values() if not any(hasattr(package, new) for package in packages)] == []


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
