"""The pickler of results."""

from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final

import cloudpickle
import numpy as np
import pyarrow as pa

from stoker.processes.results.arrays import PLACED, reduce_array, reduce_buffer
from stoker.processes.results.identity import reduce_class, reduce_function
from stoker.processes.results.outgoing import LARGE_BYTES, Outgoing, address_of

_reducers: Final[dict[type, Callable[[Any, Outgoing], Any]]] = {np.ndarray: reduce_array, pa.Buffer: reduce_buffer}
_clouds: Final = dict(cloudpickle.Pickler._dispatch_table)
_clouds.pop(io.TextIOWrapper)  # an open file is an error here, as with torch; cloudpickle would read it and send that


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle carries no types
    """Pickles what cloudpickle can; large buffers go to ``out``. For one value."""

    def __init__(self, file: io.BytesIO, out: Outgoing) -> None:
        self._out = out
        self._tensor = _tensor_class()
        # cloudpickle's is a ChainMap, whose search takes longer than all else about a small object
        self.dispatch_table = copyreg.dispatch_table | _clouds
        # no method of this object, which would make it wait for the garbage collector together with all it has seen
        super().__init__(file, 5, _OutOfBand(out).take)

    def reducer_override(self, obj: Any) -> Any:
        """Reduce what is ours to reduce; called for everything but Python's own plain values."""
        cls = type(obj)
        reduce = _reducers.get(cls)
        if reduce is not None:
            return reduce(obj, self._out)
        if cls is FunctionType:
            return reduce_function(obj, self)
        if isinstance(obj, type):
            return reduce_class(obj, self)
        if self._tensor is not None and isinstance(obj, self._tensor):
            return _reducers[self._tensor](obj, self._out)
        return NotImplemented


class _OutOfBand:
    """Adds the buffers of objects that bring protocol 5 themselves."""

    def __init__(self, out: Outgoing) -> None:
        self._out = out

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        """Add a buffer if it is large; return whether it stays in the pickle."""
        if buffer is PLACED:
            return False
        try:
            raw = buffer.raw()
        except BufferError:
            return True  # its bytes lie scattered; the pickler knows what to say
        if raw.nbytes < LARGE_BYTES:
            return True
        self._out.add(address_of(np.frombuffer(raw, np.uint8)), raw.nbytes, raw)
        return False


def _tensor_class() -> type | None:
    """torch's class of tensors; None where no tensor can be, since torch was not imported."""
    torch = sys.modules.get("torch")
    cls = getattr(torch, "Tensor", None)  # not there while torch is being imported
    if cls is not None and cls not in _reducers:
        from stoker.processes.results.tensors import reduce_tensor

        _reducers[cls] = reduce_tensor
    return cls
