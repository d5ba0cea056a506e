"""Element types: what they are called, how they lie in Arrow, what they become in NumPy and torch.

A *dtype name* is NumPy's (``"float32"``, ``"datetime64[ns]"``) or that of a type NumPy lacks (``"bfloat16"``). Its
*storage* is the Arrow-able NumPy dtype of the same width whose bits stand for it.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

BFLOAT16: Final = "bfloat16"

_DIRECT = frozenset(
    ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)
_STORAGE = {"bool": "uint8", BFLOAT16: "uint16", "complex64": "uint64"}


class UnsupportedValueError(Exception):
    """A value that cannot travel; the text says why. Never leaves the package."""


def is_stored_as_is(name: str) -> bool:
    """Whether NumPy's own numbers of this dtype name can be assigned to its storage."""
    return name in _DIRECT or name == "bool"


@lru_cache(maxsize=256)
def storage_dtype(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype that a column of this dtype name is stored as. Raises UnsupportedValueError."""
    if name in _DIRECT:
        return np.dtype(name)
    if name in _STORAGE:
        return np.dtype(_STORAGE[name])
    if name.startswith(("datetime64[", "timedelta64[")):
        return np.dtype(np.int64)
    if name.startswith("float8_"):
        return np.dtype(np.uint8)
    raise UnsupportedValueError(f"arrays of dtype {name} cannot travel")


@lru_cache(maxsize=256)
def arrow_type(storage: np.dtype[Any]) -> pa.DataType:
    return pa.from_numpy_dtype(storage)


@lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of a NumPy dtype in the machine's byte order; ml_dtypes' extensions included."""
    return dtype.name if dtype.isnative else dtype.newbyteorder("=").name


def as_numpy(stored: NDArray[Any], name: str) -> NDArray[Any]:
    """Return stored bits as the NumPy array they stand for: a view.

    What NumPy lacks (bfloat16) comes as ml_dtypes' type where that package is installed, else as a float32 copy, which
    holds the same values.
    """
    if name == stored.dtype.name:
        return stored
    if name != BFLOAT16 and not name.startswith("float8_"):
        return stored.view(np.dtype(name))
    try:
        import ml_dtypes
    except ImportError:
        return _widened(stored, name)
    return stored.view(np.dtype(getattr(ml_dtypes, name)))


def _widened(stored: NDArray[Any], name: str) -> NDArray[Any]:
    if name == BFLOAT16:
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(as_torch(stored, name).float().numpy())


def as_torch(stored: NDArray[Any], name: str) -> Any:
    """Return stored bits as the torch tensor they stand for, sharing memory; dates come as their int64 count."""
    import torch

    tensor = torch.from_numpy(stored)
    torch_dtype = getattr(torch, name, None)
    if torch_dtype is None or torch_dtype == tensor.dtype:
        return tensor
    return tensor.view(torch_dtype)


def from_torch(tensor: Any) -> tuple[NDArray[Any], str]:
    """Return a tensor's bits and its dtype name; shares memory where the tensor lies on the CPU."""
    torch = sys.modules["torch"]
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _DIRECT:
        tensor = tensor.contiguous().view(getattr(torch, storage_dtype(name).name))
    return tensor.numpy(), name
