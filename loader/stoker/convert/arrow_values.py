"""Rows of Arrow tables, as Hugging Face's ``datasets`` writes them, become values; pure."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stoker.convert.fields import Json, Value
from stoker.errors import SampleError, SpecError

Convert = Callable[[Any], "Value | None"]

_METADATA = b"huggingface"


def class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """The names that columns of ``ClassLabel`` number."""
    raw = (schema.metadata or {}).get(_METADATA)
    try:
        features: Mapping[str, Any] = json.loads(raw)["info"]["features"] if raw else {}
    except (ValueError, KeyError, TypeError):
        return {}
    return {
        name: [str(entry) for entry in feature["names"]]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" and feature.get("names")
    }


def converters(url: str, schema: pa.Schema, wanted: Sequence[str] | None) -> dict[str, Convert]:
    """How each column that is wanted is converted. Raises SpecError for an unknown name."""
    names = schema.names
    if unknown := [name for name in wanted or () if name not in names]:
        raise SpecError(f"{url} has no column {unknown[0]!r}; it has: {', '.join(names)}")
    return {name: _converter(name, schema.field(name).type) for name in names if wanted is None or name in wanted}


def row_values(columns: Mapping[str, pa.Array], convert: Mapping[str, Convert], row: int) -> dict[str, Value | None]:
    """The values of one row."""
    found = {}
    for name, column in columns.items():
        value, converted = column[row].as_py(), convert[name]
        found[name] = None if value is None else converted(value)
    return found


def _converter(name: str, kind: pa.DataType) -> Convert:
    if pa.types.is_struct(kind) and {kind.field(i).name for i in range(kind.num_fields)} == {"bytes", "path"}:
        return lambda value: _embedded(name, value)
    leaf = kind
    while pa.types.is_list(leaf) or pa.types.is_large_list(leaf) or pa.types.is_fixed_size_list(leaf):
        leaf = leaf.value_type
    if leaf is not kind and (pa.types.is_integer(leaf) or pa.types.is_floating(leaf) or pa.types.is_boolean(leaf)):
        dtype = np.dtype(leaf.to_pandas_dtype())
        return lambda value: _array(value, dtype)
    if pa.types.is_floating(kind):
        scalar: Convert = np.dtype(kind.to_pandas_dtype()).type
        return scalar
    return _plain


def _embedded(name: str, value: Mapping[str, Any]) -> Value | None:
    """A picture or sound as ``datasets`` keeps it: the file's bytes, or nothing but its path."""
    if value["bytes"] is not None:
        content: bytes = value["bytes"]
        return content
    if value["path"] is None:
        return None
    raise SampleError(
        f"column {name!r} has the path {value['path']!r} but not the file; save the data set again with its files "
        "embedded (datasets: save_to_disk or push_to_hub do so)"
    )


def _array(value: Any, dtype: np.dtype[Any]) -> Value:
    try:
        made: Value = np.array(value, dtype)
    except (ValueError, TypeError):  # lists of different lengths, or with nulls
        return Json(value)
    return made


def _plain(value: Any) -> Value:
    match value:
        case bytes() | str() | bool() | int() | float():
            return value
        case dt.date() | dt.time():
            return value.isoformat()
        case decimal.Decimal() | dt.timedelta():
            return str(value)
    return Json(value)
