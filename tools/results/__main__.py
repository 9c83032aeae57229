"""Writes RESULTS.md and its figures from the records in results/, so that no number in it is typed.

``--check`` changes nothing and exits with 1 if the document or a figure is out of date. ``--root`` selects another
checkout.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.results.document import FIGURES, make_results

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = "RESULTS.md"


def expected_files(root: Path) -> dict[Path, str]:
    """Return the paths and contents of the document and its figures."""
    results = make_results(root)
    return {root / DOCUMENT: results.text} | {root / name: svg for name, svg in results.figures.items()}


def out_of_date(root: Path, expected: dict[Path, str]) -> list[str]:
    """Return the files that are missing or different, and figures that are no longer used."""
    stale = [path for path, text in expected.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    unused = [path for path in sorted((root / FIGURES).glob("*.svg")) if path not in expected]
    return [path.relative_to(root).as_posix() for path in [*stale, *unused]]


def main(words: list[str] | None = None) -> int:
    """Write or check the document and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.results", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if something is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="root of the checkout (default: this one)")
    arguments = parser.parse_args(words)
    expected = expected_files(arguments.root)
    stale = out_of_date(arguments.root, expected)
    if arguments.check:
        if stale:
            print(f"Out of date: {', '.join(stale)}. Run `make documents`.", file=sys.stderr)
        return int(bool(stale))
    for name in stale:
        path = arguments.root / name
        if path in expected:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(expected[path], encoding="utf-8", newline="\n")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
