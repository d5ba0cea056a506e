"""Batches copied to a device, on a stream beside the trainer's."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stoker.batch import convert
from stoker.batch.dtypes import as_torch
from stoker.batch.pinned import pool_for
from stoker.device.program import DeviceProgram
from stoker.device.runs import Run, packed_offsets, runs_of

if TYPE_CHECKING:
    import pyarrow as pa

MAX_PENDING: Final = 2
"""Batches whose host memory is held for copies that are under way, at most."""


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A batch whose copy has begun. ``tensors`` own all its memory on the device; ``event`` is None on the CPU."""

    fields: dict[str, Any]
    tensors: Sequence[Any]
    event: Any
    num_copies: int
    num_bytes: int

    def hand_over(self) -> dict[str, Any]:
        """The fields, for the current stream of the calling thread, which waits for the copy; the thread does not."""
        if self.event is not None and self.tensors:
            torch: Any = importlib.import_module("torch")
            stream = torch.cuda.current_stream(self.tensors[0].device)
            stream.wait_event(self.event)
            for tensor in self.tensors:
                tensor.record_stream(stream)
        return self.fields


class Copier:
    """Copies batches, for one thread.

    Memory that is pinned already is copied from where it lies; other memory is copied into a pinned buffer first. Both
    are held until the device has them.
    """

    def __init__(self, device: str, program: DeviceProgram) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._device = device
        self._program = program
        self._stream = self._torch.cuda.Stream(device=device) if device != "cpu" else None
        self._staging = pool_for(pin_memory=self._stream is not None)
        self._pending: deque[tuple[Any, Any]] = deque()

    def copy(self, batch: pa.RecordBatch, device_fields: Mapping[str, Any]) -> OnDevice:
        """Begin to copy a batch and to carry out the program on it. Raises SpecError if the program does not fit."""
        self._let_go(MAX_PENDING - 1)
        sources: list[Any] = [batch]
        with nullcontext() if self._stream is None else self._torch.cuda.stream(self._stream):
            columns = convert.numbers(batch)
            runs = runs_of([[bits for bits, _ in column] for column in columns])
            places = self._copied(runs, sources)
            tensors = self._tensors(runs, places, [dtype for column in columns for _, dtype in column])
            fields = {**convert.formed(batch, lambda _bits, _dtype: next(tensors)), **device_fields}
            made, replaced = self._program.run(fields)
            event = self._event(device_fields, sources)
        used = {_address(tensor) for tensor in replaced}
        small = [place for run, place in zip(runs, places, strict=True) if run.is_small][:1]
        large = [place for run, place in zip(runs, places, strict=True) if not run.is_small]
        owners = [tensor for tensor in (*large, *device_fields.values()) if _address(tensor) not in used]
        return OnDevice(
            fields=made,
            tensors=(*small, *owners, *(made[name] for name in self._program.fields)),
            event=event,
            num_copies=len(large) + bool(small),
            num_bytes=sum(run.num_bytes for run in runs),
        )

    def close(self) -> None:
        """Wait for copies that are under way, and let go of their sources."""
        self._let_go(0)

    def _copied(self, runs: Sequence[Run], sources: list[Any]) -> list[Any]:
        """The memory of each run on the device, as bytes; ``sources`` must be held until the copies are done."""
        small = [run for run in runs if run.is_small]
        offsets, num_bytes = packed_offsets(small)
        packed: Any = self._packed(small, offsets, num_bytes, sources) if small else None
        starts = iter(offsets)
        places = []
        for run in runs:
            if run.is_small:
                start = next(starts)
                places.append(packed[start : start + run.num_bytes])
            else:
                places.append(self._sent(self._pinned(run, sources)))
        return places

    def _packed(self, small: Sequence[Run], offsets: Sequence[int], num_bytes: int, sources: list[Any]) -> Any:
        buffer = self._staging.take(num_bytes)
        for run, start in zip(small, offsets, strict=True):
            buffer[start : start + run.num_bytes] = run.memory()
        sources.append(buffer)
        return self._sent(self._torch.from_numpy(buffer))

    def _pinned(self, run: Run, sources: list[Any]) -> Any:
        tensor = self._torch.from_numpy(run.memory())
        if self._stream is None or tensor.is_pinned():
            sources.append(run)  # bools and the like are arrays of their own, which the batch does not hold
            return tensor
        buffer = self._staging.take(run.num_bytes)
        np.copyto(buffer, run.memory())
        sources.append(buffer)
        return self._torch.from_numpy(buffer)

    def _sent(self, source: Any) -> Any:
        place = self._torch.empty(len(source), dtype=self._torch.uint8, device=self._device)
        return place.copy_(source, non_blocking=True)

    def _tensors(self, runs: Sequence[Run], places: Sequence[Any], dtypes: Sequence[str]) -> Iterator[Any]:
        """A tensor for each array of each run."""
        names = iter(dtypes)
        for run, place in zip(runs, places, strict=True):
            for start, array in zip(run.starts, run.arrays, strict=True):
                dtype = as_torch(np.empty(0, array.dtype), next(names)).dtype
                part = place[start : start + array.nbytes]
                yield part.view(dtype).view(array.shape)

    def _event(self, device_fields: Mapping[str, Any], sources: list[Any]) -> Any:
        if self._stream is None:
            return None
        for tensor in device_fields.values():
            tensor.record_stream(self._stream)
        event = self._torch.cuda.Event()
        event.record(self._stream)
        self._pending.append((event, sources))
        return event

    def _let_go(self, most: int) -> None:
        """Drop the sources of copies that are done, and wait until at most so many are not."""
        while self._pending and (len(self._pending) > most or self._pending[0][0].query()):
            self._pending[0][0].synchronize()
            self._pending.popleft()


def _address(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())
