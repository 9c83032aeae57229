"""AdapterPool: adaptation of many streams with one adapter, whose state is switched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import ByteSize, TypeAdapter
from torch import Tensor, nn

from driftlaw import adapt
from driftlaw.base import Adapter
from driftlaw.base.switching import HostObjects, load_stream_state, stream_state
from driftlaw.components.cache import fingerprint
from driftlaw.errors import UsageError, suggest
from driftlaw.execution.locks import ForkSafeRLock
from driftlaw.pool.packed_state import PackedState
from driftlaw.pool.stream_files import StreamFiles, encode_name

HOST = torch.device("cpu")


class Tier:
    """States in one kind of memory, the least recently used ones first.

    Args:
        limit: bytes that they may need; None: no limit.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.states: dict[str, PackedState] = {}
        self.nbytes = 0

    def add(self, stream: str, state: PackedState) -> None:
        """Add a state as the most recently used one."""
        self.remove(stream)
        self.states[stream] = state
        self.nbytes += state.nbytes

    def remove(self, stream: str) -> None:
        """Remove the state of a stream, if there is one."""
        if (state := self.states.pop(stream, None)) is not None:
            self.nbytes -= state.nbytes

    def accepts(self, nbytes: int) -> bool:
        """Return True if a state of this size is within the limit."""
        return self.limit is None or nbytes <= self.limit

    def surplus(self, nbytes: int, leaving: str) -> list[str]:
        """Return the streams whose states must be removed before one of this size is added.

        Args:
            nbytes: bytes of the state.
            leaving: a stream whose state will be removed in any case.
        """
        left = self.states[leaving].nbytes if leaving in self.states else 0
        excess = 0 if self.limit is None else self.nbytes - left + nbytes - self.limit
        chosen = []
        for stream, state in self.states.items():
            if excess <= 0:
                break
            if stream != leaving:
                chosen.append(stream)
                excess -= state.nbytes
        return chosen


class AdapterPool:
    """Adapters for many streams (cameras, users, tenants) in the memory of one adapter and of what each stream changed.

    ``pool(images, stream="camera-7")`` returns the logits that a separate adapter of that stream would return, bit for
    bit: ``driftlaw.adapt(model, method, **settings)``. All streams share one adapter. Its state is switched when
    another stream is used: weights, moments, buffers, random numbers, recent images, guard and counters. Weights that
    the method does not adapt exist once.

    The states of streams that are not in use are on the device of the model. If they need more than ``memory``, the
    least recently used ones are moved to host memory, without the tensors that still are those of the source model. If
    these need more than ``host_memory``, the least recently used ones are moved to files. They are used again as if
    they had stayed. During a switch, up to two states more are in memory.

    A pool may be used by several threads; it runs one call at a time. A call that fails loses no state.

    Args:
        model: as for ``driftlaw.adapt``.
        method: as for ``driftlaw.adapt``.
        memory: bytes for states on the device of the model, such as ``2_000_000`` or ``"2 GB"``; None: no limit.
        host_memory: bytes for further states in host memory; None: no limit.
        folder: folder for the files. A pool continues the streams that it finds there. One pool at a time may use it.
        **settings: further arguments of ``driftlaw.adapt``. All streams start with the same ``seed``.

    Raises:
        UsageError: an argument is invalid, or the guard has a folder for snapshots.
        DataError: the folder is not writable, or is in use by another pool.

    >>> import driftlaw
    >>> pool = AdapterPool(driftlaw.load_model("wrn_16_1-cifar10"), "tent", memory="1 MB")
    >>> logits = pool(torch.rand(64, 3, 32, 32), stream="camera-7")
    >>> pool
    <AdapterPool: TENT, 1 stream; states: 0 on the device, 0 in host memory, 0 files>
    """

    def __init__(
        self,
        model: nn.Module,
        method: str | type[Adapter] = "law",
        *,
        memory: int | str | None = None,
        host_memory: int | str | None = None,
        folder: str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        self._resident = Tier(_read_bytes("memory", memory))  # states on the device
        self._idle = Tier(_read_bytes("host_memory", host_memory))  # states in host memory
        if folder is not None and (not isinstance(folder, str | os.PathLike) or "\0" in str(folder)):
            raise UsageError(f"folder is {folder!r}. Expected the path of a folder.")
        self._adapter = adapter = adapt(model, method, **settings)
        if adapter.guard is not None and adapter.guard.folder is not None:
            raise UsageError("All streams would write to guard.snapshots. Remove it, and pass folder= to the pool.")
        self._device = next((value.device for value in adapter.model.parameters()), HOST)
        self._initial = PackedState.pack(*stream_state(adapter), HOST)
        self._initial_tensors = self._initial.tensors(self._device)
        self._lock = ForkSafeRLock()
        self._current: str | None = None  # the stream whose state the adapter has
        self._in_use: str | None = None
        self._files: StreamFiles | None = None
        if folder is not None:
            owner = [adapter.name, adapter.config.model_dump(mode="json"), adapter.seed]
            self._files = StreamFiles(Path(folder), fingerprint(adapter.model, owner))
        self._objects = {stream: HostObjects() for stream in self._files.sizes} if self._files else {}

    # --- use -----------------------------------------------------------------------------------------------------

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
        Settings of the adapter itself, such as callbacks, are those of all streams.

        Raises:
            DataError: the file of the stream is damaged, or another state cannot be written to the folder.
        """
        encode_name(stream)
        with self._lock:
            if self._in_use not in (None, stream):
                raise UsageError(f"Stream '{self._in_use}' is in use. Leave its using() before '{stream}' is used.")
            outer = self._in_use
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
            self._objects[stream] = HostObjects()

    def remove(self, stream: str) -> None:
        """Forget a stream and delete its file.

        Raises:
            UsageError: the pool has no such stream, or it is in use.
        """
        with self._lock:
            encode_name(stream)
            if stream not in self._objects:
                hint = suggest(stream, self._objects)
                raise UsageError(f"The pool has no stream '{stream}'. {hint}pool.streams() lists all.")
            if stream == self._in_use:
                raise UsageError(f"Stream '{stream}' is in use. Leave its using() first, or call adapter.reset().")
            if self._files is not None:
                self._files.delete(stream)
            self._resident.remove(stream)
            self._idle.remove(stream)
            del self._objects[stream]
            self._current = None if self._current == stream else self._current

    # --- overview ------------------------------------------------------------------------------------------------

    def streams(self) -> list[str]:
        """Return the names of all streams, the least recently used ones first."""
        with self._lock:
            return list(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, stream: object) -> bool:
        return stream in self._objects

    def memory(self) -> dict[str, int]:
        """Return the bytes of all states that are not in use: on the ``device``, in ``host`` memory, on ``disk``."""
        with self._lock:
            disk = sum(self._files.sizes.values()) if self._files is not None else 0
            return {"device": self._resident.nbytes, "host": self._idle.nbytes, "disk": disk}

    def __repr__(self) -> str:
        count, files = len(self._objects), len(self._files.sizes) if self._files else 0
        return (
            f"<AdapterPool: {self._adapter.title}, {count} stream{'s' * (count != 1)}; states: "
            f"{len(self._resident.states)} on the device, {len(self._idle.states)} in host memory, {files} files>"
        )

    # --- files ---------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the states of all streams to the folder, so that a new pool continues from them.

        Without it, files contain the state in which a stream was moved to disk last.

        Raises:
            UsageError: the pool has no folder.
            DataError: the disk is full or the folder is not writable; earlier files are unchanged.
        """
        if self._files is None:
            raise UsageError("The pool has no folder. Create it with folder=.")
        with self._lock:
            for stream, state in {**self._resident.states, **self._idle.states}.items():
                self._files.save(stream, state.without(self._initial))
            if self._current is not None:
                self._files.save(self._current, self._pack_current().without(self._initial))

    def close(self) -> None:
        """Save all states if the pool has a folder, and let other pools use it. The pool must not be used after it."""
        if self._files is not None:
            self.save()
            self._files.close()
        self._adapter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- switching -----------------------------------------------------------------------------------------------

    def _switch(self, stream: str) -> None:
        """Give the adapter the state of a stream. If this fails, no state is lost."""
        objects = self._objects.get(stream) or HostObjects()
        if stream != self._current:
            state = self._resident.states.get(stream) or self._idle.states.get(stream)
            if state is None and self._files is not None and stream in self._files.sizes:
                state = self._files.load(stream)
            with torch.inference_mode(False):
                self._store_current(stream)
                self._current = None  # until the state is complete
                tensors, plain = self._initial_tensors, json.loads(self._initial.plain)
                if state is not None:
                    tensors, plain = tensors | state.tensors(self._device), plain | json.loads(state.plain)
                load_stream_state(self._adapter, tensors, plain)
            objects.attach(self._adapter)
            self._current = stream
            self._resident.remove(stream)
            self._idle.remove(stream)
        self._objects.pop(stream, None)
        self._objects[stream] = objects  # now the most recently used one

    def _store_current(self, next_stream: str) -> None:
        """Copy the state of the adapter to the device memory of the pool, or to a lower tier."""
        if self._current is None:
            return
        state = self._pack_current()
        if not self._resident.accepts(state.nbytes):
            self._store_in_host_memory(self._current, state, next_stream)
            return
        for stream in self._resident.surplus(state.nbytes, next_stream):
            self._store_in_host_memory(stream, self._resident.states[stream], next_stream)
            self._resident.remove(stream)
        self._resident.add(self._current, state)

    def _store_in_host_memory(self, stream: str, state: PackedState, next_stream: str) -> None:
        state = state.without(self._initial)
        if not self._idle.accepts(state.nbytes):
            self._write(stream, state)
            return
        for other in self._idle.surplus(state.nbytes, next_stream):
            self._write(other, self._idle.states[other])
            self._idle.remove(other)
        self._idle.add(stream, state)

    def _write(self, stream: str, state: PackedState) -> None:
        if self._files is None:
            raise UsageError(
                f"The states of {len(self)} streams need more than memory= and host_memory= allow. Pass folder=, raise "
                "a limit, or call pool.remove for streams that have ended."
            )
        self._files.save(stream, state)

    def _pack_current(self) -> PackedState:
        with torch.inference_mode(False):
            return PackedState.pack(*stream_state(self._adapter), self._device)


def _read_bytes(name: str, given: int | str | None) -> int | None:
    try:
        size: int | None = TypeAdapter(ByteSize | None).validate_python(given)
    except (ValueError, OverflowError):  # of pydantic
        size = -1
    if isinstance(given, bool) or (size is not None and size < 0):
        raise UsageError(f"{name} is {given!r}. Expected a number of bytes, such as 2_000_000 or '2 GB', or None.")
    return size
