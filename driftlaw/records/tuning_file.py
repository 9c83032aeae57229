"""Tuning files: the JSON document in which ``driftlaw tune`` stores its trials and the chosen settings."""

import json
from pathlib import Path
from typing import Any

from driftlaw.errors import DataError
from driftlaw.files import check_regular_file

TUNING_FORMAT = "driftlaw-tuning-1"


def read_tuning(path: Path) -> dict[str, Any]:
    """Return the document of a tuning file.

    Raises:
        DataError: if the file is missing or damaged, or is not a tuning file.
    """
    check_regular_file(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != TUNING_FORMAT:
            raise KeyError(f"format {TUNING_FORMAT}")
        for key, kind in (("settings", dict), ("method", str), ("model", dict)):
            if not isinstance(document[key], kind):
                raise TypeError(f"{key} is a {type(document[key]).__name__}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path} is not a file written by `driftlaw tune` ({error!r}). Run that command again."
        ) from error
    return dict(document)
