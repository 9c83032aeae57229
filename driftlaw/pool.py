"""AdapterPool: adaptation of many streams with one adapter, whose state is switched."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote

import torch
from pydantic import ByteSize, Field
from torch import Tensor, nn

from driftlaw import adapt
from driftlaw.base import Adapter
from driftlaw.base.packed_state import PackedState
from driftlaw.base.switching import HostObjects, load_stream, stream_state
from driftlaw.components.cache import fingerprint
from driftlaw.errors import DataError, UsageError, suggest
from driftlaw.execution.locks import ForkSafeRLock
from driftlaw.files import writable_folder
from driftlaw.settings import Settings, parse

SAFE = b"abcdefghijklmnopqrstuvwxyz0123456789-_"  # in file names; some file systems ignore case
MAX_NAME = 200  # characters of a file name for the name of a stream


class PoolSettings(Settings):
    """Settings of a pool; ``AdapterPool`` describes them."""

    memory: Annotated[ByteSize, Field(ge=0)] | None
    host_memory: Annotated[ByteSize, Field(ge=0)] | None
    folder: Path | None


class AdapterPool:
    """Adapters for many streams (cameras, users, tenants) in the memory of one adapter and of what each stream changed.

    ``pool(images, stream="camera-7")`` returns the logits that a separate adapter of that stream would return, bit for
    bit: ``driftlaw.adapt(model, method, **settings)``. All streams share one adapter. Its state is switched when
    another stream is used: weights, moments, buffers, random numbers, recent images, guard and counters. Weights that
    the method does not adapt exist once.

    The states of streams that are not in use are on the device of the model. If they need more than ``memory``, the
    least recently used ones are moved to host memory, without the tensors that still are those of the source model. If
    these need more than ``host_memory``, the least recently used ones are moved to files. They are used again as if
    they had stayed. During a switch, up to two states more are in memory. A call that fails loses no state. Several
    threads may use a pool; it runs one call at a time.

    Args:
        model, method: as for ``driftlaw.adapt``.
        memory: bytes for states on the device of the model, such as ``2_000_000`` or ``"2 GB"``; None: no limit.
        host_memory: bytes for further states in host memory; None: no limit.
        folder: folder for the files, of one pool at a time. The pool continues the streams that it finds there.
        **settings: further arguments of ``driftlaw.adapt``. All streams start with the same ``seed``.

    >>> import driftlaw
    >>> pool = AdapterPool(driftlaw.load_model("wrn_16_1-cifar10"), "tent", memory="1 MB")
    >>> logits = pool(torch.rand(64, 3, 32, 32), stream="camera-7")
    >>> pool
    <AdapterPool: TENT, 1 stream; states: 0 on the device, 0 in host memory, 0 files>
    """

    def __init__(
        self,
        model: nn.Module,
        method: str | type[Adapter] | None = None,
        *,
        memory: int | str | None = None,
        host_memory: int | str | None = None,
        folder: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        own = parse(PoolSettings, {"memory": memory, "host_memory": host_memory, "folder": folder}, where="AdapterPool")
        self._limits = own.memory, own.host_memory
        if settings.get("group") is not None:
            raise UsageError("The streams of a pool belong to one process. Omit group=, or use driftlaw.adapt().")
        self._adapter = adapter = adapt(model, method, **settings)
        if adapter.guard is not None and adapter.guard.folder is not None:
            raise UsageError("All streams would write to guard.snapshots. Remove it, and pass folder= to the pool.")
        self._device = next((value.device for value in adapter.model.parameters()), torch.device("cpu"))
        self._initial = PackedState.pack(*stream_state(adapter), torch.device("cpu"))
        self._initial_tensors = self._initial.tensors(self._device)
        self._lock = ForkSafeRLock()
        self._current: str | None = None  # the stream whose state the adapter has
        self._in_use: str | None = None  # the stream of ``using``
        self._tiers: tuple[dict[str, PackedState], ...] = {}, {}  # on the device, in host memory; the oldest first
        self._objects: dict[str, HostObjects | None] = {}  # None: not used yet; the least recently used first
        self._files: dict[str, int] = {}  # bytes of the file of every stream that has one
        self._folder = own.folder
        if own.folder is None:
            return
        self._owner = fingerprint(adapter.model, [adapter.name, adapter.config.model_dump(mode="json"), adapter.seed])
        for path in writable_folder(own.folder).glob(".stream-*.part.pt"):
            path.unlink()  # a process was killed while it wrote
        for path in sorted(own.folder.glob("stream-*.pt"), key=os.path.getmtime):
            with suppress(UsageError):  # of files that are not of a pool
                stream = unquote(path.stem.removeprefix("stream-"))
                if self._path(stream) == path:
                    self._files[stream], self._objects[stream] = path.stat().st_size, None

    def __call__(self, images: Any = None, *, stream: str, **keywords: Any) -> Any:
        """Predict one batch of a stream and update its model, as ``Adapter`` does. A new name starts a stream."""
        with self.using(stream) as adapter:
            return adapter(images, **keywords)

    def predict(self, images: Tensor, *, stream: str) -> Tensor:
        """Return logits (n, classes) without updating the model of a stream."""
        with self.using(stream) as adapter:
            return adapter.predict(images)

    @contextmanager
    def using(self, stream: str) -> Iterator[Adapter]:
        """Context manager that yields the adapter with the state of a stream, for calls that a pool does not have.

        Examples are ``step``, ``summary``, ``state_dict`` and ``guard.events``. Other threads wait until it ends.
        Callbacks and other settings of the adapter itself are those of all streams.
        """
        _encode(stream)
        with self._lock:
            outer = self._in_use
            if outer not in (None, stream):
                raise UsageError(f"Stream '{outer}' is in use. Leave its using() before '{stream}' is used.")
            self._switch(stream)
            self._in_use = stream
            try:
                yield self._adapter
            finally:
                self._in_use = outer

    def reset(self, stream: str) -> None:
        """Return a stream to the source model. This also works if its file is damaged."""
        with self._lock:
            self.remove(stream)
            self._objects[stream] = None

    def remove(self, stream: str) -> None:
        """Forget a stream and delete its file."""
        with self._lock:
            if _encode(stream) and stream not in self._objects:
                hint = suggest(stream, self._objects)
                raise UsageError(f"The pool has no stream '{stream}'. {hint}pool.streams() lists all.")
            if stream == self._in_use:
                raise UsageError(f"Stream '{stream}' is in use. Leave its using() first, or call adapter.reset().")
            try:
                if stream in self._files:
                    self._path(stream).unlink(missing_ok=True)
            except OSError as error:
                raise DataError(f"Cannot delete the state of stream '{stream}': {error.strerror}.") from error
            for known in (*self._tiers, self._files, self._objects):
                known.pop(stream, None)  # type: ignore[attr-defined]
            self._current = None if self._current == stream else self._current

    def streams(self) -> list[str]:
        """Return the names of all streams, the least recently used one first."""
        return list(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, stream: object) -> bool:
        return stream in self._objects

    def memory(self) -> dict[str, int]:
        """Return the bytes of all states that are not in use: on the ``device``, in ``host`` memory, on ``disk``."""
        with self._lock:
            device, host = (sum(state.nbytes for state in tier.values()) for tier in self._tiers)
            return {"device": device, "host": host, "disk": sum(self._files.values())}

    def __repr__(self) -> str:
        (device, host), count, files = map(len, self._tiers), len(self), len(self._files)
        stored = f"{device} on the device, {host} in host memory, {files} files"
        return f"<AdapterPool: {self._adapter.title}, {count} stream{'s' * (count != 1)}; states: {stored}>"

    @torch.inference_mode(False)
    def save(self) -> None:
        """Write the states of all streams to the folder, so that a new pool continues from them.

        Without it, files contain the state in which a stream was moved to disk last.
        """
        with self._lock:
            packed = PackedState.pack(*stream_state(self._adapter), self._device)
            current = {} if self._current is None else {self._current: packed}
            for stream, state in (self._tiers[0] | self._tiers[1] | current).items():
                self._store(stream, state, "", len(self._tiers))

    @torch.inference_mode(False)
    def _switch(self, stream: str) -> None:
        """Give the adapter the state of a stream. If this fails, no state is lost."""
        objects = self._objects.get(stream)
        if stream != self._current:
            state = self._tiers[0].get(stream) or self._tiers[1].get(stream)
            if state is None and stream in self._files:
                state = PackedState.load(self._path(stream), stream, self._owner)
            if self._current is not None:
                self._store(self._current, PackedState.pack(*stream_state(self._adapter), self._device), stream)
            self._current = None  # until the state is complete
            tensors, plain = self._initial_tensors, json.loads(self._initial.plain)
            if state is not None:
                tensors, plain = tensors | state.tensors(self._device), plain | json.loads(state.plain)
            objects = load_stream(self._adapter, tensors, plain, objects)
            self._current = stream
            for tier in self._tiers:
                tier.pop(stream, None)
        self._objects.pop(stream, None)
        self._objects[stream] = objects  # now the most recently used one

    def _store(self, stream: str, state: PackedState, leaving: str, level: int = 0) -> None:
        """Move the least recently used states to the next tier, except for ``leaving``, and store a state in a tier."""
        state = state.without(self._initial) if level else state
        if level == len(self._tiers):  # the folder
            if self._folder is None:
                what = f"The pool has no folder for the states of its {len(self)} streams"
                raise UsageError(f"{what}. Pass folder=, raise a limit, or call pool.remove for ended streams.")
            state.save(self._path(stream), stream, self._owner)
            self._files[stream] = self._path(stream).stat().st_size
            return
        tier, limit = self._tiers[level], self._limits[level]
        if limit is not None and state.nbytes > limit:
            self._store(stream, state, leaving, level + 1)
            return
        others = {name: other for name, other in tier.items() if name != leaving}
        excess = 0 if limit is None else state.nbytes + sum(other.nbytes for other in others.values()) - limit
        for name, other in others.items():
            if excess > 0:
                self._store(name, other, leaving, level + 1)
                excess -= tier.pop(name).nbytes
        tier[stream] = state

    def _path(self, stream: str) -> Path:
        return Path(self._folder or "") / f"stream-{_encode(stream)}.pt"


def _encode(stream: object) -> str:
    """Return the name of a stream as part of a file name: other characters than a-z, 0-9, - and _ become %XX."""
    if not (isinstance(stream, str) and stream.isprintable()):
        raise UsageError(f"The name of a stream is {stream!r}. Expected text without control characters.")
    encoded = "".join(chr(byte) if byte in SAFE else f"%{byte:02x}" for byte in stream.encode())
    if not 0 < len(encoded) <= MAX_NAME:
        raise UsageError(
            f"The name of a stream has {len(encoded)} characters, where other characters than a-z, 0-9, - and _ count "
            f"as three or more. Expected 1 to {MAX_NAME}."
        )
    return encoded
