"""Command lines from records, as a reader can repeat them."""

from __future__ import annotations

import re
import shlex

_MACHINE_OPTIONS = {"--out", "--data-dir", "--checkpoint-seconds", "--jobs", "--workers"}
_MACHINE_FLAGS = {"--json", "--quiet", "-q", "--compress", "--again", "--overwrite"}


def tidy_command(command: str | None) -> str:
    """Return a recorded command without options that do not change the result, and without absolute paths.

    >>> tidy_command("driftlaw run cifar10-c --seeds 1-3 --out /tmp/runs --json")
    'driftlaw run cifar10-c --seeds 1-3'
    """
    words = iter(shlex.split(command or ""))
    kept = []
    for word in words:
        name, equals, _ = word.partition("=")
        if name in _MACHINE_OPTIONS:
            if not equals:
                next(words, None)
        elif word not in _MACHINE_FLAGS:
            kept.append(re.sub(r"(?<![\w:])/(?:[^/\s]+/)+", "", word))
    return shlex.join(kept)
