"""Reading of files that torch.save wrote: tensors and plain data only, never code."""

import os
import re
from typing import Any

import torch

from driftlaw.errors import DataError
from driftlaw.files import check_regular_file

EXPECTED = "Expected tensors by name, written by torch.save(model.state_dict(), path)."


def read_torch_file(
    path: str | os.PathLike[str], device: torch.device | str = "cpu", *, expected: str = EXPECTED
) -> Any:
    """Return the contents of a file of tensors and plain data. Code in the file is not run.

    torch's own errors are replaced, because they advise to load the file in a way that runs its code.

    Args:
        path: the file.
        device: where its tensors are put.
        expected: sentence of the error that says what the file should be.

    Raises:
        DataError: the file is missing or damaged, or contains other Python objects.
    """
    check_regular_file(path)
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except (MemoryError, torch.cuda.OutOfMemoryError):
        raise
    except Exception as error:  # torch raises many types for files that it cannot read
        text = str(error)
        if found := re.search(r"GLOBAL (\S+)", text):
            reason = f"contains Python objects ({found[1]}), which can run code when they are loaded. {expected}"
        elif "TorchScript" in text:
            reason = f"is a TorchScript archive, which contains code. {expected}"
        elif isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError):
            reason = f"cannot be read as a torch file: {error.strerror}."
        else:
            reason = f"is damaged or was not written by torch.save. {expected}"
        raise DataError(f"{path} {reason}") from None
