"""Rules of the package that import-linter (pyproject.toml) does not cover: torch, private names, words, file sizes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "driftlaw"
MODULES = sorted(PACKAGE.rglob("*.py"))
EXECUTION_WORDS = re.compile(
    r"\bthread(s|ed|ing)?\b|\bstream(s|ed|ing)?\b|\bgraphs?\b|\bcaptur(e|es|ed|ing)\b|\bcompil(e|es|ed|er|ing|ation)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("module", ["driftlaw", "driftlaw.records", "driftlaw.reports", "driftlaw.cli"])
def test_light_modules_do_not_import_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0


@pytest.mark.parametrize("path", sorted((PACKAGE / "methods").glob("*.py")), ids=lambda path: path.name)
def test_methods_contain_mathematics_and_not_execution(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if EXECUTION_WORDS.search(line)] == []


def test_no_private_name_is_imported_from_another_package():
    offences = []
    for path in MODULES:
        package = path.relative_to(PACKAGE).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("driftlaw."):
                continue
            private = any(re.match(r"_[a-z]", name.name) for name in node.names)
            if private and node.module.split(".")[1] != package.removesuffix(".py"):
                offences.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert offences == []


def test_files_and_the_wheel_stay_small():
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > 300} == {}
    assert lines["methods/law.py"] <= 150
    assert sum(lines.values()) <= 30_280
