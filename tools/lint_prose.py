"""Find words of the project's former private dialect in code, tests and documents.

Usage: python tools/lint_prose.py [path ...]

Prints every match as path:line: text and exits with code 1 if there are any. CONTRIBUTING.md explains what to write
instead.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATHS = "driftlaw README.md docs CONTRIBUTING.md CHANGELOG.md benchmarks tools examples tests Makefile pyproject.toml"
GENERATED = ("docs/_build/", "docs/reference/")
SUFFIXES = {".py", ".md", ".toml", ".rst", ".jinja", ".html", ".txt", ""}
PATTERN = re.compile(
    r"«|»|\btold\b|\bhangs? on\b|\bstands? (in|still)\b|\bat hand\b|said once|\banew\b|\bnobody\b"
    r"|\btell whether\b|\bwhere left out\b|\bwho errs\b",
    re.IGNORECASE,
)


def text_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the text files among paths and in directories, without this file and generated pages."""
    for path in paths:
        candidates = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in candidates:
            name = file.relative_to(ROOT).as_posix()
            if (
                file.is_file()
                and file.suffix in SUFFIXES
                and not name.startswith((".", *GENERATED, "tools/lint_prose"))
            ):
                yield file


def main(arguments: list[str]) -> int:
    """Check the given paths, or the default ones, and return the exit code."""
    paths = [Path(argument).resolve() for argument in arguments] or [ROOT / name for name in PATHS.split()]
    matches = 0
    for file in text_files(paths):
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="ignore").splitlines(), start=1):
            found = PATTERN.search(line)
            if found:
                matches += 1
                print(f"{file.relative_to(ROOT)}:{number}: '{found.group()}' in: {line.strip()}")
    print(f"{matches} lines need plain English" if matches else "no match", file=sys.stderr)
    return 1 if matches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
