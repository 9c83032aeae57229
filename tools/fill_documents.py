"""Fills the marked places of the documents with what a command prints, so that no figure in them is typed.

A place opens with ``<!-- made by: driftlaw report … -->`` and ends with ``<!-- made -->``. ``--check`` changes nothing
and exits with 1 where a document is out of date.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "docs/speed.md")
PLACE = re.compile(r"(<!-- made by: (?P<command>driftlaw [^\n]*?) -->\n).*?(<!-- made -->)", re.DOTALL)


def printed_by(command: str) -> str:
    """Return what a driftlaw command prints when it is run at the root of the checkout."""
    words = [sys.executable, "-m", "driftlaw", *shlex.split(command)[1:]]
    return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def filled(text: str) -> str:
    """Return a document with every marked place made anew."""
    return PLACE.sub(lambda place: f"{place[1]}\n{printed_by(place['command'])}\n\n{place[3]}", text)


def main() -> int:
    """Fill or check every document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where a document is out of date")
    check = parser.parse_args().check
    stale = []
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        made = filled(text)
        if made != text:
            stale.append(name)
            if not check:
                path.write_text(made, encoding="utf-8")
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run `make documents`", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
