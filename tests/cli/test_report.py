import json
import re
import sys

import pytest
import typer
from typer.testing import CliRunner

from driftlaw.cli.report import report
from driftlaw.errors import DataError, UsageError
from tests.reports.example_records import make_record, write_record

app = typer.Typer()
app.command()(report)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_record(make_record("source", [45] * 15), tmp_path / "runs" / "source.jsonl")
    write_record(make_record("law", [20] * 15), tmp_path / "runs" / "deep" / "law.jsonl.gz")
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(app, list(words))


def test_page_is_written_to_report_html_by_default(runs):
    result = invoke("runs")
    assert result.exit_code == 0
    assert "report.html: report of 2 runs" in result.stderr
    assert result.stdout == ""
    text = (runs / "report.html").read_text(encoding="utf-8")
    assert "driftlaw report runs --format html" in text
    assert "runs/deep/law.jsonl.gz" in text


def test_same_command_gives_the_same_bytes(runs):
    pages = []
    for _ in range(2):
        invoke("runs", "--out", "page.html")
        pages.append((runs / "page.html").read_bytes())
    assert pages[0] == pages[1]


def test_page_shows_an_image_per_domain_if_the_dataset_is_here(runs):
    from driftlaw.streams import make_stream

    recipe = make_stream("embedded", corruptions=["fog", "snow"]).recipe()
    for method in ("norm", "law"):
        write_record(make_record(method, {"fog": 20, "snow": 30}, stream=recipe), runs / "here" / f"{method}.jsonl")
    assert invoke("here", "--out", "page.html").exit_code == 0
    page = (runs / "page.html").read_text(encoding="utf-8")
    assert page.count('<img src="data:image/png;base64,') == 3
    assert invoke("here", "--out", "page.html", "--no-images").exit_code == 0
    page = (runs / "page.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert "--no-images" in page


@pytest.mark.parametrize(
    "dataset", [{"name": "cifar10", "sha256": "0"}, {"name": "someone's own"}, {"name": "folder:/no"}]
)
def test_page_without_the_dataset_has_no_images(runs, dataset, monkeypatch):
    monkeypatch.setenv("DRIFTLAW_DATA", str(runs / "empty"))
    write_record(make_record("law", stream={"dataset": dataset}), runs / "away" / "law.jsonl")
    result = invoke("away", "--out", "page.html")
    assert result.exit_code == 0
    assert "<img" not in (runs / "page.html").read_text(encoding="utf-8")


def test_the_same_images_are_shown_once(runs):
    from driftlaw.streams import make_stream

    for schedule in ("continual", "reset"):
        recipe = make_stream("embedded", corruptions=["fog"], schedule=schedule).recipe()
        write_record(make_record("law", {"fog": 20}, stream=recipe), runs / "two" / f"{schedule}.jsonl")
    invoke("two", "--out", "page.html")
    assert (runs / "page.html").read_text(encoding="utf-8").count("<img") == 2  # clean and fog


@pytest.mark.parametrize(
    ("format", "start"), [("md", "###"), ("latex", "% requires"), ("csv", "protocol,"), ("json", "{")]
)
def test_text_formats_are_printed(runs, format, start):
    result = invoke("runs", "--format", format)
    assert result.stdout.startswith(start)
    assert not (runs / "report.html").exists()


def test_text_formats_are_written_to_a_file(runs):
    result = invoke("runs", "-f", "json", "-o", "new/folder/report.json")
    assert result.exit_code == 0
    assert len(json.loads((runs / "new/folder/report.json").read_text())["tables"]) == 1


@pytest.mark.parametrize(
    ("name", "start"), [("a.md", "###"), ("a.tex", "% requires"), ("a.CSV", "protocol,"), ("a", "<!")]
)
def test_format_follows_from_the_suffix_of_the_file(runs, name, start):
    assert invoke("runs", "--out", name).exit_code == 0
    assert (runs / name).read_text(encoding="utf-8").startswith(start)
    invoke("runs", "--format", "html", "--out", name)
    assert (runs / name).read_text(encoding="utf-8").startswith("<!")


def test_methods_are_selected(runs):
    document = json.loads(invoke("runs", "-f", "json", "--methods", "law").stdout)
    assert [row["method"] for row in document["tables"][0]["rows"]] == ["law"]
    assert document["command"] == "driftlaw report runs --format json --methods law"


def test_columns_are_shown(runs):
    document = json.loads(invoke("runs", "-f", "json", "--columns", "worst,ece").stdout)
    law = next(row for row in document["tables"][0]["rows"] if row["method"] == "law")
    assert law["measures"] == {"worst": {"mean": 20.0, "std": None}, "ece": {"mean": None, "std": None}}
    assert document["command"] == "driftlaw report runs --format json --columns worst,ece"
    assert "worst 10, %" in invoke("runs", "-f", "terminal", "--columns", "worst").stdout
    assert "Did you mean 'worst'" in str(invoke("runs", "--columns", "worts").exception)


def test_unknown_method_suggests_the_closest_name(runs):
    result = invoke("runs", "-f", "md", "--methods", "sorce")
    assert isinstance(result.exception, UsageError)
    assert "Did you mean 'source'" in str(result.exception)


def test_unknown_format_suggests_the_closest_name(runs):
    error = invoke("runs", "--format", "htm").exception
    assert isinstance(error, UsageError)
    assert "Did you mean 'html'" in str(error)
    assert error.exit_code == 2


def test_missing_and_damaged_records_are_data_errors(runs):
    (runs / "empty").mkdir()
    (runs / "damaged.jsonl").write_text('{"format":"driftlaw-run-1"}\n{"batch":0}\n')
    for path in ("empty", "nowhere", "damaged.jsonl"):
        error = invoke(path, "--out", "page.html").exception
        assert isinstance(error, DataError)
        assert error.exit_code == 1
    assert not (runs / "page.html").exists()


def test_another_file_is_not_called_a_damaged_record(runs):
    (runs / "README.md").write_text("# driftlaw\n\nA library.\n")
    error = invoke("README.md").exception
    assert isinstance(error, DataError)
    assert str(error) == "README.md is not a record of driftlaw. Records are .jsonl or .jsonl.gz files."


@pytest.mark.parametrize(
    ("name", "message"),
    [("x.pdf", r"ends in \.html, .*For a PDF, write \.html and print"), ("x.txt", "Or pass --format")],
)
def test_suffix_without_a_format_is_an_error(runs, name, message):
    error = invoke("runs", "--out", name).exception
    assert isinstance(error, UsageError)
    assert re.search(message, str(error))
    assert not (runs / name).exists()


def test_unfinished_run_is_reported_on_stderr(runs):
    write_record(make_record("tent", finished=False, batches_done=4), runs / "runs" / "tent.jsonl")
    result = invoke("runs", "-f", "csv")
    assert "note: TENT, seed 1 is unfinished (4 of 30 batches, runs/tent.jsonl)" in result.stderr


def test_folder_as_output_file_is_an_error(runs):
    assert isinstance(invoke("runs", "--out", "runs").exception, UsageError)


def test_unwritable_path_is_an_error(runs):
    (runs / "file").write_text("")
    error = invoke("runs", "--out", "file/report.html").exception
    assert isinstance(error, DataError)
    assert "file" in str(error)


def test_errors_are_printed_with_an_exit_code(runs, monkeypatch, capsys):
    from driftlaw.cli import main

    monkeypatch.setattr(sys, "argv", ["driftlaw", "report", "runs", "--format", "pdf"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "Unknown format 'pdf'" in capsys.readouterr().err


def test_comparison_with_the_paper_in_markdown(runs):
    result = invoke("runs", "--compare", "paper")
    assert result.exit_code == 0
    assert "| LAW | yes | 1 | **20.0** | 15.7 ± 0.06 | +4.3 |" in result.stdout
    assert "model wrn\\_16\\_1 (paper wrn\\_28\\_10)" in result.stdout
    assert "Protocol: dataset: cifar10-embedded test" in result.stdout
    assert "· precision: " in result.stdout


def test_comparison_with_the_paper_in_json_and_html(runs):
    document = json.loads(invoke("runs", "--compare", "paper", "-f", "json").stdout)
    assert document["command"] == "driftlaw report runs --format json --compare paper"
    lines = {line["method"]: line for line in document["tables"][0]["paper"]["rows"]}
    assert lines["law"]["paper"] == {"mean": 15.7}
    assert lines["law"]["difference"]["mean"] == pytest.approx(4.3)
    assert lines["law"]["domains"]["fog"] == {"ours": 20.0, "paper": 12.8}
    invoke("runs", "--compare", "paper", "-f", "html")
    assert "Comparison with the paper" in (runs / "report.html").read_text(encoding="utf-8")


def test_no_comparison_by_default(runs):
    assert "paper" not in json.loads(invoke("runs", "-f", "json").stdout)["tables"][0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-f", "csv", "--compare", "paper"], "Use --compare with html, md, brief, json"),
        (["--compare", "papr"], "Did you mean 'paper'"),
    ],
)
def test_impossible_comparison_is_an_error(runs, words, message):
    error = invoke("runs", *words).exception
    assert isinstance(error, UsageError)
    assert message in str(error)


def test_benchmark_file_is_an_error(runs):
    (runs / "step.json").write_text('{"bench": "step"}', encoding="utf-8")
    error = invoke("step.json", "-f", "md").exception
    assert isinstance(error, DataError)
    assert "step.json" in str(error)
