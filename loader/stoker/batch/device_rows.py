"""One field whose rows are made on a device, where the batch is wanted."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from stoker.errors import CollateError
from stoker.sample import Deferred, Write
from stoker.streams import beside


@runtime_checkable
class DeviceDeferred(Protocol):
    """A Deferred that can be made in a torch tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def tensor_writer(self, out: Any) -> Write:
        """Prepare to fill ``out``, a contiguous tensor of this shape and dtype; as :meth:`Deferred.writer`."""
        ...


class DeviceRows:
    """Takes the values of one field, row by row, from many threads; the first one fixes the shape and dtype."""

    def __init__(self, name: str, num_rows: int, device: str) -> None:
        self._name = name
        self._num_rows = num_rows
        self._device = device
        self._lock = threading.Lock()
        self._rows: Any = None
        self._present = np.zeros(num_rows, np.bool_)

    @property
    def has_any(self) -> bool:
        """Whether any sample had the field."""
        return self._rows is not None

    def put(self, row: int, value: Any, key: str) -> Write | None:
        """Put a picture or an array into its row; what is returned makes its pixels. Raises CollateError."""
        torch: Any = importlib.import_module("torch")
        if not isinstance(value, np.ndarray) and not isinstance(value, Deferred):
            raise CollateError(
                f"field {self._name!r} of sample {key!r} is a {type(value).__name__}, in others a picture: it is made "
                f"on {self._device}; give every sample one"
            )
        shape, dtype = tuple(value.shape), getattr(torch, value.dtype.name)
        with self._lock:
            if self._rows is None:
                with beside(self._device):
                    self._rows = torch.empty((self._num_rows, *shape), dtype=dtype, device=self._device)
        rows = self._rows
        if tuple(rows.shape[1:]) != shape or rows.dtype != dtype:
            raise CollateError(
                f"field {self._name!r}: sample {key!r} has the shape {shape} and dtype {value.dtype}, others of its "
                f"batch {tuple(rows.shape[1:])} and {rows.dtype}; bring them to one shape"
            )
        self._present[row] = True
        if isinstance(value, DeviceDeferred):
            return value.tensor_writer(rows[row])
        array = value if isinstance(value, np.ndarray) else value.array()
        with beside(self._device):
            rows[row].copy_(torch.from_numpy(np.ascontiguousarray(array)))
        return None

    def finish(self, shown: Sequence[int], keys: Sequence[str]) -> Any:
        """The tensor whose row ``i`` is what was put into row ``shown[i]``. Raises CollateError."""
        for row, key in zip(shown, keys, strict=True):
            if not self._present[row]:
                raise CollateError(f"field {self._name!r}: sample {key!r} has none, and others of its batch do")
        if isinstance(shown, range):
            return self._rows[: len(shown)]
        torch: Any = importlib.import_module("torch")
        with beside(self._device):
            return self._rows[torch.tensor(list(shown), device=self._rows.device)]
