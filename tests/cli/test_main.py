"""Command line: help, version and exit codes."""

import logging
import os
import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from driftlaw import __version__, cli
from driftlaw.errors import DataError, DriftlawError, UsageError

COMMANDS = ["run", "watch", "reproduce", "report", "data", "corrupt", "export", "check", "list", "doctor"]


def python(*words, **more):
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, **more)


def exit_code_of_main(monkeypatch, *words):
    """Return the exit code of ``main()`` with these arguments."""
    monkeypatch.setattr(sys, "argv", ["driftlaw", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code or 0


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.fixture(autouse=True)
def _restore_quiet(monkeypatch):
    """-q sets an environment variable, which must not affect other tests."""
    monkeypatch.setenv("DRIFTLAW_QUIET", "")


def test_help_names_every_command():
    result = CliRunner().invoke(cli.app, ["--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f"{command} " in result.stdout
    assert "driftlaw run embedded" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_own_help(command):
    result = CliRunner().invoke(cli.app, [command, "-h"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert f"driftlaw {command}" in result.stdout.replace("root", "driftlaw")


@pytest.mark.parametrize("command", ["run", "reproduce"])
def test_old_option_names_still_work(command):
    options = {option for param in typer.main.get_command(cli.app).commands[command].params for option in param.opts}
    assert {"--model", "--network"} <= options
    assert {"--metrics", "--measures", "--overwrite", "--again"} <= options


def test_the_command_line_imports_neither_torch_nor_numpy():
    code = (
        "import sys, driftlaw, driftlaw.cli; print([m for m in ('torch', 'numpy', 'matplotlib') if m in sys.modules])"
    )
    assert python("-c", code).stdout.strip() == "[]"


def test_the_package_can_be_run_as_a_module():
    done = python("-m", "driftlaw", "--version")
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, __version__, "")


def test_no_arguments_show_the_help_and_exit_with_2(monkeypatch, capsys):
    assert exit_code_of_main(monkeypatch) == 2
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["lst"], ["list", "--jsn"], ["list", "too", "many"]])
def test_wrong_arguments_exit_with_2(monkeypatch, capsys, words):
    assert exit_code_of_main(monkeypatch, *words) == 2
    assert capsys.readouterr().out == ""


def test_an_unknown_name_exits_with_2_and_one_message(monkeypatch, capsys):
    assert exit_code_of_main(monkeypatch, "list", "mthods") == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("driftlaw: Unknown kind 'mthods'. Did you mean 'methods'?")
    assert len(output.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("wrong use"), 2),
        (DataError("bad data"), 1),
        (DriftlawError("failed"), 1),
        (PermissionError(13, "Permission denied", "/x"), 1),
    ],
)
def test_errors_become_one_message_and_their_exit_code(monkeypatch, capsys, error, code):
    monkeypatch.setattr("driftlaw.cli.list._entries", failing(error))
    assert exit_code_of_main(monkeypatch, "list") == code
    assert capsys.readouterr().err == f"driftlaw: {error}\n"


def test_a_bug_raises_its_exception(monkeypatch):
    monkeypatch.setattr("driftlaw.cli.list._entries", failing(ZeroDivisionError("ours")))
    monkeypatch.setattr(sys, "argv", ["driftlaw", "list"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_verbose_prints_the_traceback():
    done = python("-m", "driftlaw", "-v", "list", "mthods")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    assert "driftlaw: unknown" in done.stderr.lower()


def test_driftlaws_warnings_are_one_line_and_others_have_file_and_line():
    code = """
import warnings
from driftlaw import cli
from driftlaw.errors import warn_user
cli.app = lambda **_: (warn_user("mind the gap"), warnings.warn("from elsewhere", stacklevel=1))
before = warnings.showwarning
cli.main()
assert warnings.showwarning is before
"""
    stderr = python("-c", code).stderr
    assert stderr.startswith("driftlaw: ! mind the gap\n")
    assert ": UserWarning: from elsewhere" in stderr
    assert "gap" not in stderr.partition("\n")[2]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_ends_with_one_message(monkeypatch, capsys, number, code):
    before = signal.getsignal(number)
    monkeypatch.setattr("driftlaw.cli.list._entries", lambda kind: signal.raise_signal(number))
    assert exit_code_of_main(monkeypatch, "list") == code
    assert capsys.readouterr().err == "driftlaw: Interrupted.\n"
    assert signal.getsignal(number) is before


@pytest.mark.parametrize(
    ("options", "advice"),
    [([], "again"), (["--overwrite"], "without --overwrite"), (["--again"], "without --overwrite")],
)
def test_an_interrupted_run_says_how_to_resume(monkeypatch, capsys, options, advice):
    monkeypatch.setattr("driftlaw.experiments.plan_run", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    assert exit_code_of_main(monkeypatch, "run", *options) == 130
    assert capsys.readouterr().err == f"driftlaw: Interrupted. Run the same command {advice} to resume.\n"


def test_quiet_is_accepted_after_the_command(monkeypatch):
    monkeypatch.setenv("DRIFTLAW_QUIET", "")
    assert exit_code_of_main(monkeypatch, "list", "presets", "-q") == 0
    assert os.environ["DRIFTLAW_QUIET"] == "1"


@pytest.mark.parametrize("words", [[], ["run"], ["data"], ["data", "get"], ["check"]])
def test_help_shows_no_type_for_flags(monkeypatch, capsys, words):
    monkeypatch.setattr(sys, "argv", ["driftlaw", *words, "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        cli.main()
    text = capsys.readouterr().out
    assert "Show this message and exit" in text
    assert "bool" not in text.lower()


def test_help_joins_the_lines_of_a_paragraph(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["driftlaw", "run", "--help"])
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit):
        cli.main()
    assert "records. A record that was made with other weights or by an incompatible" in capsys.readouterr().out


def test_quiet_sets_the_environment_variable(monkeypatch, capsys):
    assert exit_code_of_main(monkeypatch, "-q", "list", "presets") == 0
    assert os.environ["DRIFTLAW_QUIET"] == "1"
    assert "embedded" in capsys.readouterr().out


def test_json_on_stdout_is_not_mixed_with_logs(monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert exit_code_of_main(monkeypatch, "-v", "list", "presets", "--json") == 0
    assert capsys.readouterr().out.startswith("[")


@pytest.mark.parametrize("words", [["list", "corruptions", "--json"], ["list", "presets", "--json"]])
def test_a_closed_pipe_is_no_error(words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "driftlaw", *words], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
