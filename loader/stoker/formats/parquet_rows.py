"""From the bytes of a row group to its samples; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stoker.errors import SampleError, SampleOrigin
from stoker.formats.parquet_columns import values_of
from stoker.formats.parquet_groups import Choice
from stoker.formats.sparse_file import SparseFile
from stoker.sample import RawSample


def read_group(file: SparseFile, footer: pq.FileMetaData, group: int, choice: Choice) -> pa.Table:
    """A row group in this thread; checksums of pages are compared where pages have them. Raises what pyarrow raises.

    Without ``pre_buffer`` and threads of Arrow's own: see :func:`stoker.formats.parquet.open_parquet`.
    """
    with pq.ParquetFile(
        pa.PythonFile(file, "r"), metadata=footer, pre_buffer=False, page_checksum_verification=True
    ) as opened:
        table = opened.read_row_group(group, columns=choice.columns, use_threads=False)
    expected = footer.row_group(group).num_rows
    if table.num_rows != expected:
        raise ValueError(f"{table.num_rows} rows where its footer says {expected}")
    return table


def samples_of(table: pa.Table, choice: Choice, url: str, first_row: int) -> list[RawSample | SampleError]:
    """The rows of a group; ``first_row`` is the number of its first in the shard at ``url``.

    A row without a key is named after its place. Raises ValueError for a column that is not as its type says.
    """
    columns = [values_of(table.column(name)) for name in choice.fields]
    keys: Sequence[Any] = [None] * table.num_rows
    if choice.key:
        keys = values_of(table.column(choice.key))
    stem = url.rpartition("/")[2].removesuffix(".parquet")
    found: list[RawSample | SampleError] = []
    for row, (key, *values) in enumerate(zip(keys, *columns, strict=True), first_row):
        origin = SampleOrigin(url, row, key if isinstance(key, str) else f"{stem}/{row}")
        found.append(_sample(origin, choice.fields, values))
    return found


def _sample(origin: SampleOrigin, names: Sequence[str], values: Sequence[Any]) -> RawSample | SampleError:
    fields: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(value, SampleError):
            return SampleError(f"field {name!r}: {value.reason}", origin=origin)
        if value is not None:
            fields[name] = value
    return RawSample(origin, fields)
