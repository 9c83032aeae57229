"""Connection to Ray: start or reach it within a time limit, and check the versions on its nodes."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from driftlaw.errors import UsageError, combined_error

CONNECT_SECONDS = 30.0
NODE_SECONDS = 120.0  # for a node to start a worker process, or for a cluster to have a node that is large enough
LOCAL = "local"  # Ray's name for a new Ray on this machine


def connect(on: str) -> Callable[[], None]:
    """Connect to Ray, or start it on this machine, and return a function that disconnects.

    If this process is connected already, nothing is done.

    Args:
        on: ``ray`` for the cluster of the environment variable RAY_ADDRESS, or for a new local Ray if it is not set;
            otherwise the address of a cluster, ``ray://HOST:PORT`` or ``HOST:PORT``.

    Raises:
        UsageError: Ray is not installed, or the cluster cannot be reached.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is reported
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f'--on {on} needs Ray, which is not installed. Install it with: pip install "driftlaw[ray]"'
        ) from error
    if ray.is_initialized():
        return lambda: None
    address = os.environ.get("RAY_ADDRESS") or LOCAL if on == "ray" else on
    if address not in (LOCAL, "auto") and not re.fullmatch(r"(ray://)?[^/\s]+:\d{1,5}", address):
        raise UsageError(f"--on {on}: '{address}' is not an address. Expected 'ray', ray://HOST:PORT or HOST:PORT.")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        options |= {"include_dashboard": False, "object_store_memory": 2**28}
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        if address != LOCAL:
            _check_reachable(address)
        ray.init(address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip() or type(error).__name__
        raise UsageError(
            f"Cannot connect to Ray at {address}: {reason.removesuffix('.')}. Check that the cluster runs (`ray "
            "status` on its head node), the address, the port and firewalls. If it has token authentication, set "
            "RAY_AUTH_MODE=token and its token. From a machine that is no node of it, use ray://HOST:10001."
        ) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has replaced it
    return ray.shutdown


def _check_reachable(address: str) -> None:
    """Raise ConnectionError if a child process cannot connect. In this process, Ray might wait for minutes."""
    if address != "auto":
        host, _, port = address.removeprefix("ray://").rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    code = "import ray, sys; ray.init(sys.argv[1], log_to_driver=False, logging_level='ERROR')"
    command = [sys.executable, "-c", code, address]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=CONNECT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ConnectionError(f"no answer within {CONNECT_SECONDS:.0f} seconds") from None
    if done.returncode:
        raise ConnectionError(" ".join(done.stderr.rpartition("Error: ")[2].split())[:500])


def alive_nodes() -> list[dict[str, Any]]:
    """Return what Ray knows about the nodes of the cluster."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def resources() -> list[dict[str, float]]:
    """Return the CPUs, GPUs and bytes of memory of every node, under Ray's names ``CPU``, ``GPU`` and ``memory``."""
    return [node["Resources"] for node in alive_nodes()]


def has_node_with(needs: Mapping[str, float]) -> bool:
    """Return True if a node has as many CPUs and GPUs as the options of a task ask for."""
    names = {"num_cpus": "CPU", "num_gpus": "GPU"}
    return any(all(node.get(names[key], 0) >= value for key, value in needs.items()) for node in resources())


def pick_cluster_device(name: str) -> str:
    """Return ``cpu`` or ``cuda`` for a device name; ``auto`` is ``cuda`` if a node has a GPU."""
    usable = ["cuda", "cpu"] if has_node_with({"num_gpus": 1}) else ["cpu"]
    if name not in ("auto", *usable):
        raise UsageError(f"--device {name} cannot be used on this Ray cluster. Use auto or {' or '.join(usable)}.")
    return usable[0] if name == "auto" else name


def on_every_node(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Call a function once on every node and return the results by node. Raise UsageError if one does not answer."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    calls = {}
    for node in [node["NodeID"] for node in alive_nodes()]:
        place = NodeAffinitySchedulingStrategy(node, soft=False)
        calls[node] = ray.remote(function).options(num_cpus=0, scheduling_strategy=place).remote(*arguments)
    try:
        return dict(zip(calls, ray.get(list(calls.values()), timeout=NODE_SECONDS), strict=True))
    except (ray.exceptions.RayError, TimeoutError) as error:
        raise UsageError(
            f"A node of the Ray cluster cannot start a worker: {str(error).splitlines()[0]} Look at `ray status` and "
            "at the logs of its nodes."
        ) from error


def check_versions() -> dict[str, str]:
    """Return the names of the nodes by their ids.

    Raises:
        UsageError: a node has another version of Python, driftlaw, torch or numpy than this process.
    """

    def versions() -> dict[str, str]:  # as an inner function Ray sends its code, also to nodes without driftlaw
        import platform
        from importlib import metadata

        found = {"Python": platform.python_version()}
        for name in ("driftlaw", "torch", "numpy"):
            try:
                found[name] = metadata.version(name).partition("+")[0]  # builds for other devices
            except metadata.PackageNotFoundError:
                found[name] = "missing"
        return found

    ours, nodes = versions(), {node["NodeID"]: node for node in alive_nodes()}
    hosts = [node["NodeManagerHostname"] for node in nodes.values()]
    names = {
        key: host if hosts.count(host := node["NodeManagerHostname"]) == 1 else f"{host}-{key[:6]}"
        for key, node in nodes.items()
    }
    problems = [
        f"{names[node]}: {name} {version}, here {ours[name]}"
        for node, found in on_every_node(versions).items()
        for name, version in found.items()
        if version != ours[name]
    ]
    if problems:
        raise combined_error("Nodes of the Ray cluster have other versions. Install the same on all of them:", problems)
    return names
