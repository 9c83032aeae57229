"""Progress on stderr."""

import sys

from driftlaw.cli.console import command_line, progress_bar


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


def test_command_line_can_be_typed_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/driftlaw", "run", "--set", "stream.dataset=folder:my images"])
    assert command_line() == "driftlaw run --set 'stream.dataset=folder:my images'"
