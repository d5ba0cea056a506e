"""One batch of every kind of column that the loader makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from stoker.batch import BatchBuilder, BufferPool, empty
from support.samples import Picture, batch, column, sample


@dataclass
class Box:
    corner: Any
    label: Any


def pictures(num_rows: int, pool: BufferPool | None = None, edge: int = 64) -> pa.RecordBatch:
    """Pictures, labels and captions in memory of the pool."""
    builder = BatchBuilder(num_rows, pool or BufferPool(), {})
    for i in range(num_rows):
        fields: dict[str, Any] = {"image": Picture((edge, edge, 3), i % 251), "label": i, "caption": f"picture {i}"}
        builder.put(i, sample(i, **fields))
    return builder.finish(np.arange(num_rows), None, {"stoker.note": "three"})


def of_every_kind() -> dict[str, pa.RecordBatch]:
    rows: list[dict[str, Any]] = [
        {
            "image": np.full((4, 3), i, np.uint8),
            "flag": i == 1,
            "half": torch.full((2,), i, dtype=torch.bfloat16),
            "ids": np.arange(i + 1),
            "boxes": [[i, 2]],
            "meta": {"a": i, "b": (np.ones(2), None), "box": Box(np.ones(2), "x")},
        }
        for i in range(3)
    ]
    lists: list[Any] = [np.ones((2, 3), np.float32), None, np.zeros(0, np.int8), np.ones(3, np.bool_)]
    names = ("bool", "int8", "uint64", "float16", "float32", "float64", "complex64", "datetime64[ns]")
    rich = batch(rows, ids="ragged")
    return {
        "rich": rich,
        "nested": batch([{"m": {"a": i, "b": (np.ones(2), None)}} for i in range(3)]),
        "pictures": pictures(5),
        **{f"scalar-{name}": column("x", [np.ones((), name)[()] for _ in range(9)]) for name in names},
        **{f"tensor-{name}": column("x", [np.ones((2, 3), name) for _ in range(3)]) for name in names},
        "python-bool": column("x", [True, False, True] * 7),
        "text": column("x", ["é", None, ""]),
        "binary": column("x", [b"abc", None, bytes(5000)]),
        "json": column("x", [[1, 2.5], [], ["a"]]),
        "null": column("x", [None, None]),
        "pad": column("x", [np.ones(2), np.ones(5)], "pad"),
        "ragged": column("x", [np.ones(2), np.ones(0), np.ones(5)], "ragged"),
        "ragged-of-axes": column("x", [np.ones((2, 3, 2)), np.ones((1, 3, 2))], "ragged"),
        "ragged-of-nothing": column("x", [np.ones((2, 0)), np.ones((1, 0))], "ragged"),
        "list": column("x", lists, "list"),
        "tensor-without-elements": column("x", [np.ones((0, 3)), np.ones((0, 3))]),
        "one-row": column("x", [np.arange(10)]),
        "filler": empty(2, rich.schema, BufferPool(), {}),
        "no-rows": empty(0, rich.schema, BufferPool(), {}),
        "no-fields": batch([{}, {}]),
    }


def foreign() -> dict[str, pa.RecordBatch]:
    """Columns of types that Stoker does not make, and that other code may put into a batch."""
    arrays = {
        "nullable": pa.array([1, None, 3]),
        "nullable-bool": pa.array([True, None, False] * 20),
        "decimal": pa.array([1, None], pa.decimal128(10, 2)),
        "fixed-bytes": pa.array([b"ab", b"cd"], pa.binary(2)),
        "large-text": pa.array(["a", None], pa.large_utf8()),
        "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
        "map": pa.array([[("a", 1)], []], pa.map_(pa.utf8(), pa.int64())),
        "list-of-struct": pa.array([[{"a": 1, "b": None}], None, []]),
        "large-list": pa.array([[1, 2], None], pa.large_list(pa.int16())),
        "fixed-list": pa.array([[1, 2], None], pa.list_(pa.int16(), 2)),
        "struct": pa.array([{"a": 1}, None]),
        "view": pa.array(["a long text that is not inline", None], pa.string_view()),
        "dates": pa.array([1, 2], pa.timestamp("us", "UTC")),
    }
    return {name: pa.record_batch([array], names=["x"]) for name, array in arrays.items()}
