"""Code blocks, commands, links and generated tables in the README, the manual, CONTRIBUTING and CHANGELOG."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer

ROOT = Path(__file__).resolve().parent.parent
MANUAL = sorted(
    str(path.relative_to(ROOT))
    for folder in ("docs", "docs/guides", "docs/methods")
    for path in ROOT.glob(f"{folder}/*.md")
)
CARDS = [page for page in MANUAL if page.startswith("docs/methods/")]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *MANUAL]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)[^)]*\)")


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str, language: str) -> list[tuple[str, str]]:
    """Return (info, code) of the fenced code blocks in a language."""
    matches = FENCE.finditer(text_of(document))
    return [(match["info"], match["code"]) for match in matches if match["info"].split(" ")[0] == language]


def python_code(document: str) -> str:
    return "\n".join(code for info, code in blocks(document, "python") if info == "python")


def commands(document: str) -> list[list[str]]:
    """Return the commands of the shell blocks as lists of words, without comments."""
    code = "".join(code for _, code in blocks(document, "sh")).replace("\\\n", " ")
    lines = (shlex.split(line, comments=True) for line in code.splitlines())
    return [words for words in lines if words]


ALL_COMMANDS = [(document, words) for document in DOCUMENTS for words in commands(document)]


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, env=environment)


PAGES = [name for name in DOCUMENTS if name not in CARDS and python_code(name)]


@pytest.mark.parametrize("first", range(2))
def test_python_blocks_run_one_after_the_other(first, tmp_path):
    """Every second page runs in one process, with a fifth of the images where it has 500, to save time."""
    code = ""
    for page in PAGES[first::2]:
        blocks = re.sub(r"\b500\b", "100", python_code(page))
        code += f"exec(compile({blocks!r}, {page!r}, 'exec'), {{'__name__': '__main__'}})\n"
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_python_blocks_of_method_pages_run(tmp_path):
    done = run_python("\n".join(python_code(card) for card in CARDS), tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_method_page_shows_code():
    assert [card for card in CARDS if not python_code(card) and not card.endswith("index.md")] == []


def test_before_and_after_blocks_of_the_migration_guide_are_valid_python():
    kinds = [info for info, code in blocks("CHANGELOG.md", "python") if ast.parse(code)]
    assert kinds == ["python before", "python after"] * (len(kinds) // 2)
    assert kinds


def parse(app: typer.Typer, words: list[str]) -> None:
    """Parse a command line with a Typer application, without running it."""
    command = typer.main.get_command(app)
    while hasattr(command, "get_command"):
        context = command.make_context(words[0], words[1:2], resilient_parsing=True)
        command, words = command.get_command(context, words[1]), words[1:]
        assert command is not None, f"there is no command {words[0]}"
    command.make_context(words[0], words[1:])


def check_command(words: list[str]) -> None:
    match words:
        case ["driftlaw", "--install-completion"]:
            pass
        case ["driftlaw", *_]:
            from driftlaw.cli import app

            parse(app, words)
        case ["python", "-m", "benchmarks", *rest]:
            from benchmarks.__main__ import app as benchmarks

            parse(benchmarks, ["benchmarks", *rest])
        case ["torchrun", *rest] if "-m" in rest:
            check_command(rest[rest.index("-m") + 1 :])
        case ["python", script, *_]:
            assert (ROOT / script).exists()
        case ["make", *targets]:
            rules = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert all(re.search(rf"^{target}:", rules, re.MULTILINE) for target in targets)
        case ["pip", "install", "driftlaw"]:
            pass
        case _:
            raise AssertionError(f"unexpected command: {shlex.join(words)}")


@pytest.mark.parametrize(
    ("document", "words"), ALL_COMMANDS, ids=[f"{page}: {shlex.join(w)}" for page, w in ALL_COMMANDS]
)
def test_commands_exist_with_the_options_shown(document, words):
    check_command(words)


def test_extras_in_the_documents_exist():
    extras = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    named = {
        extra
        for page in DOCUMENTS
        for match in re.findall(r"driftlaw\[([\w,]+)\]", text_of(page))
        for extra in match.split(",")
    }
    assert named <= set(extras)


def test_tables_in_the_readme_match_the_records():
    command = [sys.executable, "tools/fill_documents.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_readme_is_short_and_names_test_time_adaptation_first():
    readme = text_of("README.md")
    assert len(readme.split()) <= 1300
    first_sentence = readme.split("\n\n")[1].split(". ")[0]
    assert "test-time adaptation" in first_sentence


def test_readme_of_the_package_has_no_relative_links():
    hook = tomllib.loads(text_of("pyproject.toml"))["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = "\n".join(text_of(fragment["path"]) for fragment in hook["fragments"])
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert "driftlaw.adapt(" in text
    assert LINK.findall(text) == []


def test_example_method_of_contributing_passes_the_conformance_tests(tmp_path):
    ((info, code),) = [block for block in blocks("CONTRIBUTING.md", "python") if "file=" in block[0]]
    file = info.partition("file=")[2]
    (tmp_path / file).write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "driftlaw", "check", file],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", MANUAL)
def test_links_of_the_manual_stay_inside_the_manual(page):
    links = [
        link for link in LINK.findall(FENCE.sub("", text_of(page))) if "reference/" not in link and link != "genindex"
    ]
    targets = {link: ((ROOT / page).parent / link).resolve() for link in links}
    outside = [link for link, target in targets.items() if not target.is_relative_to(ROOT / "docs")]
    assert outside == []
    assert [link for link, target in targets.items() if not target.exists()] == []


@pytest.mark.parametrize("document", ["README.md", "RESULTS.md", "CONTRIBUTING.md"])
def test_links_lead_to_existing_files(document):
    links = set(LINK.findall(text_of(document)))
    assert [link for link in sorted(links) if not (ROOT / unquote(link)).exists()] == []


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub and MyST give to the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", document.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", ["README.md", "RESULTS.md", *MANUAL])
def test_anchors_in_links_are_headings(document):
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)]+)\)", text_of(document))
    targets = {(path, anchor): (ROOT / document).parent / path if path else ROOT / document for path, anchor in links}
    assert [link for link, target in targets.items() if link[1] not in anchors(target)] == []
