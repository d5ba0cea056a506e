"""Which Python values may stand in a field of a sample, sorted by how they travel."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stoker.batch.dtypes import UnsupportedValueError, dtype_name, from_torch, storage_dtype

RULE = (
    "a field may hold numbers, strings, bytes, None, arrays and tensors of numbers, bools or dates, lists of plain "
    "values, and dicts, tuples or dataclasses of these; turn it into one of them in a Map"
)
_TUPLE = "__tuple__"


class Kind(Enum):
    DEFERRED = auto()
    ARRAY = auto()
    TENSOR = auto()
    SCALAR = auto()
    TEXT = auto()
    BINARY = auto()
    NONE = auto()
    LIST = auto()
    MAPPING = auto()
    TUPLE = auto()
    NAMEDTUPLE = auto()
    DATACLASS = auto()
    OTHER = auto()


DENSE = frozenset([Kind.DEFERRED, Kind.ARRAY, Kind.TENSOR, Kind.SCALAR])
NESTED = frozenset([Kind.LIST, Kind.MAPPING, Kind.TUPLE, Kind.NAMEDTUPLE, Kind.DATACLASS])
_BUILTIN: dict[type, Kind] = {
    str: Kind.TEXT,
    bytes: Kind.BINARY,
    bytearray: Kind.BINARY,
    memoryview: Kind.BINARY,
    type(None): Kind.NONE,
    bool: Kind.SCALAR,
    int: Kind.SCALAR,
    float: Kind.SCALAR,
    np.generic: Kind.SCALAR,
    np.ndarray: Kind.ARRAY,
    list: Kind.LIST,
}


def kind_of(value: Any) -> Kind:
    """Sort a value by its type."""
    return _kind_of_type(value.__class__)


@lru_cache(maxsize=512)  # a batch asks for every field of every row
def _kind_of_type(value_type: Any) -> Kind:
    if hasattr(value_type, "writer") and hasattr(value_type, "array"):
        return Kind.DEFERRED
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is not None and issubclass(value_type, tensor):
        return Kind.TENSOR
    builtin = next((kind for known, kind in _BUILTIN.items() if issubclass(value_type, known)), None)
    return builtin or _kind_of_structure(value_type)


def _kind_of_structure(value_type: Any) -> Kind:
    if issubclass(value_type, tuple):
        return Kind.NAMEDTUPLE if hasattr(value_type, "_fields") else Kind.TUPLE
    if issubclass(value_type, Mapping):
        return Kind.MAPPING
    if dataclasses.is_dataclass(value_type):
        return Kind.DATACLASS
    if hasattr(value_type, "__array__") or hasattr(value_type, "__array_interface__"):
        return Kind.ARRAY
    return Kind.OTHER


@dataclass(frozen=True, slots=True)
class Dense:
    """The bits of an array or number, in the dtype they are stored in.

    ``weak`` marks numbers that were Python's own: an int and a float of one field become floats.
    """

    bits: NDArray[Any]
    dtype: str
    weak: bool = False


def scalar_dtype(value: Any) -> str:
    """Return the dtype name of one number."""
    if isinstance(value, np.generic):
        return dtype_name(value.dtype)
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return "float64"
    if -(2**63) <= value < 2**63:
        return "int64"
    if 0 <= value < 2**64:
        return "uint64"
    raise UnsupportedValueError(f"the integer {value} does not fit into 64 bits")


def dense(value: Any, kind: Kind) -> Dense:
    """Return the bits of a value of one of the ``DENSE`` kinds; shares memory where it can."""
    if kind is Kind.TENSOR:
        bits, name = from_torch(value)
        return Dense(bits, name)
    if kind is Kind.SCALAR and not isinstance(value, np.generic):
        name = scalar_dtype(value)
        return Dense(np.array(value, np.dtype(name)).view(storage_dtype(name)), name, weak=True)
    return as_dense(np.asarray(value.array() if kind is Kind.DEFERRED else value))


def as_dense(array: NDArray[Any]) -> Dense:
    """Return an array's bits in native byte order."""
    name = dtype_name(array.dtype)
    storage = storage_dtype(name)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if storage != array.dtype:
        array = np.require(array, requirements="C").view(storage)
    return Dense(array, name)


def from_list(values: list[Any]) -> Dense | None:
    """Return a list of numbers, or of equally long lists of them, as an array; None if it is something else."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        return None
    if array.dtype.kind not in "biuf":
        return None
    return dataclasses.replace(as_dense(array), weak=True)


def to_json(value: Any) -> str:
    """Write plain values as JSON that :func:`from_json` reads back as they were, tuples included."""
    return json.dumps(_plain(value), ensure_ascii=False)


def from_json(text: str) -> Any:
    return json.loads(text, object_hook=_tuples) if _TUPLE in text else json.loads(text)


def _tuples(found: dict[str, Any]) -> Any:
    return tuple(found[_TUPLE]) if found.keys() == {_TUPLE} else found


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if type(value) is tuple:
        return {_TUPLE: [_plain(item) for item in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        if value.keys() == {_TUPLE}:
            raise UnsupportedValueError(f"a dict whose only key is {_TUPLE!r} is ours")
        return {key: _plain(item) for key, item in value.items()}
    raise UnsupportedValueError(f"a list or a nested value holds {_describe(value)}, which is not a plain value")


def _describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a dict with keys that are not strings"
    return f"a {type(value).__module__}.{type(value).__qualname__}".replace("a builtins.", "a ")
