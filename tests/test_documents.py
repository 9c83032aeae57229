"""What README and CONTRIBUTING show is run, Python blocks, example files and commands; and links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document: str, language: str) -> list[tuple[str, str]]:
    """Return (info, code) of the fenced blocks of a language."""
    found = FENCE.finditer((ROOT / document).read_text(encoding="utf-8"))
    return [(match["info"], match["code"]) for match in found if match["info"].split(" ")[0] == language]


def commands(document: str) -> list[str]:
    """Return the driftlaw commands of the shell blocks, continued lines joined."""
    code = "".join(code for _, code in blocks(document, "sh")).replace("\\\n", " ")
    lines = [line.split("  #")[0].strip() for line in code.splitlines()]
    return [line for line in lines if line.startswith("driftlaw ")]


def test_the_readmes_python_blocks_run_one_after_the_other(tmp_path):
    code = "\n".join(code for _, code in blocks("README.md", "python"))
    assert "driftlaw.adapt(" in code
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", commands("README.md"))
def test_the_readmes_commands_have_the_options_they_are_shown_with(line):
    from driftlaw.cli import app

    command = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    context = command.make_context("driftlaw", words[:1], resilient_parsing=True)
    while hasattr(command, "get_command"):
        command = command.get_command(context, words[0])
        assert command is not None, f"no command {words[0]} in {line}"
        words = words[1:]
    command.make_context("driftlaw", words)


def test_the_readmes_figures_are_what_the_records_say():
    done = subprocess.run(
        [sys.executable, "tools/fill_documents.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_contributings_example_method_passes_the_kit(tmp_path):
    ((info, code),) = [block for block in blocks("CONTRIBUTING.md", "python") if "file=" in block[0]]
    (tmp_path / info.partition("file=")[2]).write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "driftlaw", "check", "shift.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_pages_of_the_manual_link_to_pages_of_the_manual(page):
    made_by_sphinx = ("reference/",)
    linked = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if not link.startswith(made_by_sphinx)]
    assert [link for link in linked if ".." in link or not (page.parent / link).exists()] == []


@pytest.mark.parametrize("document", ["README.md", "RESULTS.md", "CONTRIBUTING.md"])
def test_documents_link_to_files_that_are_there(document):
    linked = set(LINK.findall((ROOT / document).read_text(encoding="utf-8")))
    assert [link for link in sorted(linked) if not (ROOT / unquote(link)).exists()] == []


@pytest.mark.parametrize("document", ["README.md", "RESULTS.md"])
def test_links_within_a_document_lead_to_its_headings(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert sorted(set(re.findall(r"\]\(#([^)]+)\)", text)) - anchors) == []
