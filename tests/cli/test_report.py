import json
import sys

import pytest
import typer
from typer.testing import CliRunner

from driftlaw.cli.report import report
from driftlaw.errors import DataError, UsageError
from tests.reports import bench_records
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


def test_the_page_is_written_to_report_html_unless_told(runs):
    result = invoke("runs")
    assert result.exit_code == 0
    assert "report.html: a report of 2 runs" in result.stderr
    assert result.stdout == ""
    text = (runs / "report.html").read_text(encoding="utf-8")
    assert "driftlaw report runs --format html" in text
    assert "runs/deep/law.jsonl.gz" in text


def test_the_same_command_gives_the_same_bytes(runs):
    pages = []
    for _ in range(2):
        invoke("runs", "--out", "page.html")
        pages.append((runs / "page.html").read_bytes())
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("format", "start"), [("md", "###"), ("latex", "% needs"), ("csv", "protocol,"), ("json", "{")]
)
def test_text_goes_to_stdout(runs, format, start):
    result = invoke("runs", "--format", format)
    assert result.stdout.startswith(start)
    assert not (runs / "report.html").exists()


def test_text_goes_to_a_file_where_one_is_named(runs):
    result = invoke("runs", "-f", "json", "-o", "new/folder/report.json")
    assert result.exit_code == 0
    assert len(json.loads((runs / "new/folder/report.json").read_text())["tables"]) == 1


@pytest.mark.parametrize(
    ("name", "start"), [("a.md", "###"), ("a.tex", "% needs"), ("a.CSV", "protocol,"), ("a", "<!")]
)
def test_the_format_is_what_the_name_of_the_file_says(runs, name, start):
    assert invoke("runs", "--out", name).exit_code == 0
    assert (runs / name).read_text(encoding="utf-8").startswith(start)
    invoke("runs", "--format", "html", "--out", name)
    assert (runs / name).read_text(encoding="utf-8").startswith("<!")


def test_methods_can_be_chosen(runs):
    document = json.loads(invoke("runs", "-f", "json", "--methods", "law").stdout)
    assert [row["method"] for row in document["tables"][0]["rows"]] == ["law"]
    assert document["command"] == "driftlaw report runs --format json --methods law"


def test_columns_can_be_asked_for(runs):
    document = json.loads(invoke("runs", "-f", "json", "--columns", "worst,ece").stdout)
    law = next(row for row in document["tables"][0]["rows"] if row["method"] == "law")
    assert law["measures"] == {"worst": {"mean": 20.0, "std": None}, "ece": {"mean": None, "std": None}}
    assert document["command"] == "driftlaw report runs --format json --columns worst,ece"
    assert "worst 10, %" in invoke("runs", "-f", "terminal", "--columns", "worst").stdout
    assert "Did you mean 'worst'" in str(invoke("runs", "--columns", "worts").exception)


def test_a_method_that_was_not_run_names_the_nearest(runs):
    result = invoke("runs", "-f", "md", "--methods", "sorce")
    assert isinstance(result.exception, UsageError)
    assert "Did you mean 'source'" in str(result.exception)


def test_an_unknown_format_names_the_nearest_and_exits_with_2(runs):
    error = invoke("runs", "--format", "htm").exception
    assert isinstance(error, UsageError)
    assert "Did you mean 'html'" in str(error)
    assert error.exit_code == 2


def test_no_records_and_damaged_ones_exit_with_1(runs):
    (runs / "empty").mkdir()
    (runs / "damaged.jsonl").write_text('{"format":"driftlaw-run-1"}\n{"batch":0}\n')
    for path in ("empty", "nowhere", "damaged.jsonl"):
        error = invoke(path, "--out", "page.html").exception
        assert isinstance(error, DataError)
        assert error.exit_code == 1
    assert not (runs / "page.html").exists()


def test_an_unfinished_run_is_told_on_stderr(runs):
    write_record(make_record("tent", finished=False, batches_done=4), runs / "runs" / "tent.jsonl")
    result = invoke("runs", "-f", "csv")
    assert "note: TENT, seed 1 is unfinished (4 of 30 batches, runs/tent.jsonl)" in result.stderr


def test_a_folder_cannot_be_the_file_to_write(runs):
    assert isinstance(invoke("runs", "--out", "runs").exception, UsageError)


def test_a_place_that_cannot_be_written_to_is_one_message(runs):
    (runs / "file").write_text("")
    error = invoke("runs", "--out", "file/report.html").exception
    assert isinstance(error, DataError)
    assert "file" in str(error)


def test_errors_become_a_message_and_an_exit_code(runs, monkeypatch, capsys):
    from driftlaw.cli import main

    monkeypatch.setattr(sys, "argv", ["driftlaw", "report", "runs", "--format", "pdf"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "Unknown format 'pdf'" in capsys.readouterr().err


def test_the_papers_figures_are_printed_beside_ours(runs):
    result = invoke("runs", "--compare", "paper")
    assert result.exit_code == 0
    assert "| LAW | 1 | **20.0** | 15.7 ± 0.06 | +4.3 |" in result.stdout
    assert "network wrn\\_16\\_1 (paper wrn\\_28\\_10)" in result.stdout
    assert "Protocol: images: cifar10-embedded test" in result.stdout
    assert "· precision: " in result.stdout


def test_the_comparison_is_in_the_document_and_on_the_page(runs):
    document = json.loads(invoke("runs", "--compare", "paper", "-f", "json").stdout)
    assert document["command"] == "driftlaw report runs --format json --compare paper"
    lines = {line["method"]: line for line in document["tables"][0]["paper"]["rows"]}
    assert lines["law"]["paper"] == {"mean": 15.7}
    assert lines["law"]["difference"]["mean"] == pytest.approx(4.3)
    assert lines["law"]["domains"]["fog"] == {"ours": 20.0, "paper": 12.8}
    invoke("runs", "--compare", "paper", "-f", "html")
    assert "Beside the paper" in (runs / "report.html").read_text(encoding="utf-8")


def test_without_it_nothing_of_the_paper_is_told(runs):
    assert "paper" not in json.loads(invoke("runs", "-f", "json").stdout)["tables"][0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-f", "csv", "--compare", "paper"], "goes with --format html, md"),
        (["--compare", "papr"], "Did you mean 'paper'"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused(runs, words, message):
    error = invoke("runs", *words).exception
    assert isinstance(error, UsageError)
    assert message in str(error)


def test_one_record_of_bench_step_beside_runs_gives_their_milliseconds(runs):
    measured = bench_records.step()
    header = {"model": {"name": "wrn_10_1"}, "device": measured["device"]}
    write_record(make_record("law", batch_size=8, settings={}, header=header), runs / "small" / "law.jsonl")
    for name in ("step.json", "other.json"):
        (runs / name).write_text(json.dumps(measured), encoding="utf-8")
    result = invoke("small", "step.json", "-f", "brief")
    assert result.exit_code == 0
    assert "Made from records by `driftlaw report small step.json --format brief`" in result.stdout
    assert "Milliseconds a step: measured in one run" in result.stdout
    result = invoke("small", "step.json", "other.json", "-f", "brief")
    assert isinstance(result.exception, UsageError)
    assert "give one .json beside them" in str(result.exception)


def test_a_benchmark_of_other_steps_is_told_of(runs):
    (runs / "step.json").write_text(json.dumps(bench_records.step()), encoding="utf-8")
    result = invoke("runs", "step.json", "-f", "md")
    assert "note: the benchmark measured no step such as these runs'" in result.stderr


@pytest.mark.parametrize("option", ["--methods", "--columns", "--compare"])
def test_options_that_a_benchmark_alone_has_no_use_for_are_refused(runs, option):
    (runs / "step.json").write_text(json.dumps(bench_records.step()), encoding="utf-8")
    value = "paper" if option == "--compare" else "law"
    result = invoke("step.json", "-f", "md", option, value)
    assert isinstance(result.exception, UsageError)
    assert option in str(result.exception)
