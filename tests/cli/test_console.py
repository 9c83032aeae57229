"""Progress on stderr."""

import re
import sys

from driftlaw.cli import console
from driftlaw.cli.console import RunProgress, command_line, progress_bar
from driftlaw.experiments import RunSpec
from driftlaw.experiments.context import RunResult
from tests.reports.example_records import make_record, write_record


class Terminal:
    """A stderr that claims to be a terminal."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def test_there_is_no_bar_without_a_terminal(capsys):
    with progress_bar() as bar:
        bar.add_task("fog", total=3)
    assert bar.disable
    assert capsys.readouterr().err == ""


def test_there_is_a_bar_on_a_terminal_unless_quiet(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar() as bar:
        bar.update(bar.add_task("fog", total=3), completed=2)
    assert "fog" in sys.stderr.text
    assert "2/3" in sys.stderr.text
    monkeypatch.setenv("DRIFTLAW_QUIET", "1")
    assert progress_bar().disable


def make_progress(monkeypatch, line_seconds=0.0, count=1):
    specs = [
        RunSpec("embedded", "law", {}, seed, {"dataset": "cifar10-embedded"}, {"weights": "w"}) for seed in range(count)
    ]
    monkeypatch.setattr(console, "LINE_SECONDS", line_seconds)
    return RunProgress(progress_bar(), specs), specs


def test_lines_without_a_terminal_name_the_steps_and_the_time_left(monkeypatch, tmp_path, capsys):
    progress, (spec, _) = make_progress(monkeypatch, count=2)
    progress.started(spec, 10)
    for done in (1, 2, 3):
        progress.stepped(spec, done)
    started, *lines = capsys.readouterr().err.splitlines()
    assert started == "embedded law seed 0: started, 10 steps"
    assert [line.partition(";")[0] for line in lines] == [f"embedded law seed 0: {n} of 10 steps" for n in (2, 3)]
    assert all(re.search(r"; about [\d.]+ \w+ left$", line) for line in lines)


def test_lines_are_not_printed_more_often_than_once_per_minute(monkeypatch, tmp_path, capsys):
    progress, (spec,) = make_progress(monkeypatch, line_seconds=console.LINE_SECONDS)
    progress.started(spec, 10)
    capsys.readouterr()
    monkeypatch.setattr(console.time, "monotonic", iter([100.0, 130.0, 161.0, 161.5, 200.0]).__next__)
    for done in (1, 2, 3):
        progress.stepped(spec, done)
    assert capsys.readouterr().err.partition(";")[0] == "embedded law seed 0: 3 of 10 steps"


def test_a_resumed_run_and_a_reused_record_are_mentioned(monkeypatch, tmp_path, capsys):
    progress, (resumed, reused) = make_progress(monkeypatch, line_seconds=1e9, count=2)
    progress.started(resumed, 10)
    progress.stepped(resumed, 8)
    record = write_record(make_record("law"), tmp_path / "law.jsonl")
    progress.ended(RunResult(reused, record))
    _, first, second = capsys.readouterr().err.splitlines()
    assert first == "embedded law seed 0: resumed after 7 of 10 steps"
    assert re.search(r"\[1/2\] embedded law seed 1: [\d.]+ % error, from its finished record \(--overwrite ", second)


def test_command_line_can_be_typed_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/driftlaw", "run", "--set", "stream.dataset=folder:my images"])
    assert command_line() == "driftlaw run --set 'stream.dataset=folder:my images'"


def test_names_are_no_markup_and_control_nothing(monkeypatch, capsys):
    spec = RunSpec("[red]em\x1b[2Jbedded", "law", {}, 0, {"dataset": "cifar10-embedded"}, {"weights": "w"})
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar() as bar:
        progress = RunProgress(bar, [spec])
        progress.started(spec, 10)
        bar.refresh()
        progress.ended(RunResult(spec, None, "failed [bold]\x1b[2J"))
    shown = sys.stderr.text
    assert "[red]em\\u001b[2Jbedded" in shown
    assert "failed [bold]\\u001b[2J" in shown
    assert "em\x1b[2J" not in shown


def test_echo_escapes_control_characters(capsys):
    console.echo("a\x1b[31m")
    console.echo("b\x07", err=True)
    assert capsys.readouterr() == ("a\\u001b[31m\n", "b\\u0007\n")
