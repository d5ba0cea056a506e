"""What a scan has found in one shard so far."""

from __future__ import annotations

import contextlib
from array import array
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from stoker.formats.manifest import ROW_SCHEMA


@dataclass(slots=True)
class Row:
    """A row that is being read: where it begins, where its last member ends, what it has."""

    key: str
    start: int
    stop: int = 0
    crc: int | None = 0
    names: list[str] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    label: int | None = None


class ShardRows:
    """The whole rows of one shard, in flat arrays, with counts of what looks wrong."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._row_sizes = array("q")
        self._crcs: list[int | None] = []
        self._keys: list[str] = []
        self._fields: list[str] = []
        self._field_ends = array("i", [0])
        self._labels: list[int | None] = []
        self._hasher = blake2b(digest_size=16)
        self._keys_seen: set[int] = set()
        self._field_sets: set[tuple[str, ...]] = set()
        self._repeated = self._doubled = self._unnamed = 0
        self._repeated_like = self._doubled_like = self._unnamed_like = ""

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, row: Row) -> None:
        """Take a row that is whole."""
        self._offsets.append(row.start)
        self._row_sizes.append(row.stop - row.start)
        self._crcs.append(row.crc)
        self._keys.append(row.key)
        self._fields.extend(row.fields)
        self._field_ends.append(len(self._fields))
        self._labels.append(row.label)
        named_sizes = "".join(f"{name}\0{size}\n" for name, size in zip(row.names, row.sizes, strict=True))
        self._hasher.update(f"{named_sizes}\n".encode("utf-8", "surrogateescape"))
        self._field_sets.add(tuple(sorted(row.fields)))
        self._note(row)

    def skip_unnamed(self, name: str) -> None:
        """Count a file whose name has no field."""
        self._unnamed_like = self._unnamed_like or name
        self._unnamed += 1

    def looks_cut(self, row: Row) -> bool:
        """Whether a row at a cut lacks fields: no row before has just these, and some row has more."""
        fields = set(row.fields)
        return tuple(sorted(row.fields)) not in self._field_sets and any(
            fields < set(seen) for seen in self._field_sets
        )

    @property
    def digest(self) -> str:
        return self._hasher.hexdigest()

    def notices(self) -> list[str]:
        """One sentence for each kind of thing that looks wrong."""
        found = []
        if self._repeated:
            found.append(
                f"{self._repeated} samples have a key that was there before, such as {self._repeated_like!r}; "
                "each makes a sample of its own (members of one sample must be neighbours)"
            )
        if self._doubled:
            found.append(
                f"{self._doubled} samples have a field twice, such as {self._doubled_like}; they are bad samples"
            )
        if self._unnamed:
            found.append(f"{self._unnamed} files are left out, their names have no dot, such as {self._unnamed_like!r}")
        return found

    def batch(self) -> pa.RecordBatch:
        """The rows in the manifest's schema."""
        fields = pa.ListArray.from_arrays(
            pa.array(np.frombuffer(self._field_ends, np.int32)), pa.array(self._fields, pa.string())
        )
        columns = [
            pa.array(np.frombuffer(self._offsets, np.int64)),
            pa.array(np.frombuffer(self._row_sizes, np.int64)),
            pa.array(self._crcs, pa.uint32()),
            pa.array(self._keys, pa.string()),
            fields,
            pa.array(self._labels, pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)

    def _note(self, row: Row) -> None:
        mark = hash(row.key)
        if mark in self._keys_seen:
            self._repeated_like = self._repeated_like or row.key
            self._repeated += 1
        self._keys_seen.add(mark)
        if len(set(row.fields)) < len(row.fields):
            self._doubled_like = self._doubled_like or doubled(list(zip(row.names, row.fields, strict=True)))
            self._doubled += 1


def doubled(named_fields: list[tuple[str, str]]) -> str:
    """Which two members of a sample are the same field, for messages."""
    first: dict[str, str] = {}
    for name, field_name in named_fields:
        if field_name in first:
            return f"{field_name!r} in {first[field_name]!r} as well as {name!r}"
        first[field_name] = name
    return ""


def parse_label(content: bytes) -> int | None:
    """The whole number that a ``cls`` member holds, else None."""
    with contextlib.suppress(ValueError, UnicodeDecodeError):
        value = int(content.decode("ascii"))
        return value if abs(value) < 1 << 63 else None
    return None
