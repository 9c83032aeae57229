"""``driftlaw serve``: an HTTP server around an adapter."""

from __future__ import annotations

import json
import logging
import re
import signal
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from driftlaw.cli import options as opt
from driftlaw.cli.console import echo
from driftlaw.errors import UsageError

LOCAL = ("127.0.0.1", "localhost", "::1")  # addresses that only this machine reaches
SNAPSHOT_STEPS = 100  # steps between two snapshots, unless --set step.guard.snapshot_steps=N


def serve(
    method: opt.Method = None,
    network: opt.ServedNetwork = "embedded",
    checkpoint: opt.Checkpoint = None,
    normalize: opt.Normalize = None,
    set_: opt.Set = None,
    image_size: opt.ImageSize = None,
    host: Annotated[str, typer.Option(help="Address to bind. Others than 127.0.0.1 need --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any free one.", min=0, max=65535)] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="DRIFTLAW_TOKEN", help="Token of clients. Better set the environment variable.")
    ] = None,
    admin_token: Annotated[
        str | None, typer.Option(envvar="DRIFTLAW_ADMIN_TOKEN", help="Token of administrators, who may also predict.")
    ] = None,
    snapshots: Annotated[
        Path | None,
        typer.Option(help="Folder of snapshots. The server continues from the newest. Default: a temporary folder."),
    ] = None,
    log: Annotated[Path | None, typer.Option(help="File for the request log (JSON lines). Default: stderr.")] = None,
    device: opt.Device = "auto",
    data_dir: opt.DataDir = None,
) -> None:
    """Serve an adapting model over HTTP, with the guard on, and a live page at /.

    Settings of the server: --set server.batch_size=32, and wait_ms, queue, deadline_ms, max_images, max_body, max_json,
    max_pixels, tenants and separate_adapters in the same way.

    SIGTERM ends the server: requests in progress are answered, the state is saved, and the exit code is 0.

    For example:

    driftlaw serve --network mynet.py:make --checkpoint mynet.pth --snapshots state/ --log requests.jsonl

    DRIFTLAW_TOKEN=… DRIFTLAW_ADMIN_TOKEN=… driftlaw serve --host 0.0.0.0
    """
    try:
        import python_multipart  # noqa: F401 (forms with files need it)
        import uvicorn

        import driftlaw.serving.app  # noqa: F401
    except ImportError as error:
        raise UsageError(f'driftlaw serve needs {error.name}. Install it: pip install "driftlaw[serve]"') from error
    if host not in LOCAL and not token:
        raise UsageError(f"--host {host} is reachable from other machines. Set DRIFTLAW_TOKEN, or use 127.0.0.1.")
    from driftlaw.cli.adapter import load_adapter
    from driftlaw.serving.app import Routes
    from driftlaw.serving.class_names import class_names
    from driftlaw.serving.model_server import ModelServer
    from driftlaw.serving.network_input import choose_input
    from driftlaw.serving.settings import ServerSettings
    from driftlaw.settings import parse, parse_assignments

    for_server = [text for text in set_ or [] if text.startswith("server.")]
    others = [text for text in set_ or [] if text not in for_server]
    settings = parse(ServerSettings, parse_assignments(for_server).get("server", {}), where="the server")
    _start_request_log(log)
    with tempfile.TemporaryDirectory(prefix="driftlaw-serve-") as temporary:
        adapters, folder = {}, snapshots or Path(temporary)
        for owner in settings.adapter_names():
            guard = {"snapshots": json.dumps(str(folder / owner)), "snapshot_steps": SNAPSHOT_STEPS}
            assignments = [*(f"step.guard.{key}={value}" for key, value in guard.items()), *others]
            adapters[owner], model = load_adapter(
                method, network, checkpoint, normalize, assignments, device=device, data_dir=data_dir
            )
        weights = str(getattr(model, "info", {}).get("weights") or Path(network).stem)
        name, size = re.sub(r"[^A-Za-z0-9_.]+", "-", weights), choose_input(adapters[owner], model, image_size)
        model_server = ModelServer(adapters, settings, name=name, class_names=class_names(model), image_size=size)
        app = Routes(model_server, token, admin_token).application()
        config = uvicorn.Config(app, host=host, port=port, log_level="error", access_log=False, backlog=4096)
        server = uvicorn.Server(config)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises the signal again after it has shut down
            signal.signal(number, lambda *_: setattr(server, "should_exit", True))
        socket = config.bind_socket()
        socket.listen(config.backlog)  # connections wait from now on
        address, bound_port = socket.getsockname()[:2]
        steps = max(batcher.steps for batcher in model_server.batchers.values())
        where = snapshots or "a temporary folder"
        echo(f"{name} with {adapters[owner].name} after {steps} steps; snapshots in {where}.", err=True)
        echo(f"Live page: http://{f'[{address}]' if ':' in address else address}:{bound_port}/", err=True)
        server.run([socket])


def _start_request_log(path: Path | None) -> None:
    from logging.handlers import WatchedFileHandler

    from driftlaw.files import writable_folder

    handler: logging.Handler = logging.StreamHandler()
    if path is not None:
        handler = WatchedFileHandler(writable_folder(path.parent) / path.name)  # opens it again after it was renamed
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("driftlaw.requests")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
