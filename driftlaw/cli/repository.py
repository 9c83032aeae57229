"""Commands of the repository that are not part of the wheel: ``driftlaw train`` and ``driftlaw tune``."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated

import typer


def repository_command(name: str) -> Callable[..., None]:
    """Return a command that runs ``python -m benchmarks NAME`` in a clone of the repository."""

    def run(arguments: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        from driftlaw.errors import UsageError

        sys.path.append(os.getcwd())
        try:
            module = import_module(f"benchmarks.{name}.command")
        except ModuleNotFoundError:
            raise UsageError(
                f"The command '{name}' is part of the repository, not of the installed package. Run it in a clone: "
                f"`python -m benchmarks {name}`."
            ) from None
        finally:
            sys.path.pop()
        app = typer.Typer(add_completion=False)
        app.command()(getattr(module, name))
        command = typer.main.get_command(app)
        with command.make_context(f"driftlaw {name}", arguments or []) as context:
            command.invoke(context)

    return run
