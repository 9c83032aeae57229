"""Writes RESULTS.md and its figures from the records in results/, so that no number in it is typed.

``--check`` changes nothing and exits with 1 where the document or a figure is out of date. ``--root`` names another
checkout.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.results.make import FIGURES, make_results

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = "RESULTS.md"


def wanted_files(root: Path) -> dict[Path, str]:
    """Return what should lie where."""
    made = make_results(root)
    return {root / DOCUMENT: made.text} | {root / name: svg for name, svg in made.figures.items()}


def out_of_date(root: Path, wanted: dict[Path, str]) -> list[str]:
    """Return the files that are missing, differ, or are figures of nothing."""
    wrong = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    left_over = [path for path in sorted((root / FIGURES).glob("*.svg")) if path not in wanted]
    return [path.relative_to(root).as_posix() for path in [*wrong, *left_over]]


def main() -> int:
    """Write or check the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where something is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout; by default this one")
    arguments = parser.parse_args()
    wanted = wanted_files(arguments.root)
    stale = out_of_date(arguments.root, wanted)
    if arguments.check:
        if stale:
            print(f"out of date: {', '.join(stale)}; run `make documents`", file=sys.stderr)
        return int(bool(stale))
    for name in stale:
        path = arguments.root / name
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8", newline="\n")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
