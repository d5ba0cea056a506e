"""The manifest of a data set in tar shards, as it is held: shards, and where each row lies.

Only offsets, sizes and checksums of the rows are held, in flat arrays; keys and field names stay in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stoker.formats.compressed import SLOW
from stoker.formats.keys import KeyRule
from stoker.storage.urls import WEB_SCHEMES, scheme_of, shown

UNKNOWN_CRC = 0
"""Stands in the array for a checksum that was not computed; one true checksum in 2**32 goes unverified."""

ROW_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("crc32c", pa.uint32()),
        pa.field("key", pa.string(), nullable=False),
        pa.field("fields", pa.list_(pa.string()), nullable=False),
        pa.field("label", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard. ``version`` is what the store called it when it was scanned, ``digest`` the hash of names and sizes.

    ``content_bytes`` is the length of the tar inside, which is ``size_bytes`` unless the shard is compressed.
    ``notices`` say what is wrong with it, one sentence each, without the URL.
    """

    url: str
    size_bytes: int
    version: str
    num_rows: int
    digest: str
    encoding: Literal["tar", "gzip"]
    content_bytes: int
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """Where each row lies in its shard, in manifest order: its run of ``size`` bytes begins at ``offset``."""

    offset: NDArray[np.int64]
    size: NDArray[np.uint32] | NDArray[np.int64]
    crc32c: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Manifest:
    """All shards of a data set with where each row lies. ``url`` is empty if it could be saved nowhere."""

    url: str
    keys: KeyRule
    shards: tuple[Shard, ...]
    rows: Rows

    @property
    def num_rows(self) -> int:
        return len(self.rows.offset)

    @property
    def first_rows(self) -> NDArray[np.int64]:
        return first_rows(self.shards)

    @property
    def notices(self) -> list[str]:
        """What the user should know at each opening, one sentence each."""
        found = [f"{shown(shard.url)}: {notice}" for shard in self.shards for notice in shard.notices]
        packed = [shard for shard in self.shards if shard.encoding == "gzip"]
        return [f"{shown(packed[0].url)} and {len(packed) - 1} more: {SLOW}", *found] if packed else found

    @property
    def content_digest(self) -> str:
        """Identity of names, sizes, the order of shards and how names are split; not of the place it lies in."""
        hasher = blake2b(f"tar {self.keys}\n".encode(), digest_size=16)
        for shard in self.shards:
            hasher.update(f"{shard.digest}\n".encode())
        return hasher.hexdigest()


def first_rows(shards: Sequence[Shard]) -> NDArray[np.int64]:
    """The number, in the whole data set, of each shard's first row; one more entry for the end."""
    counts = np.fromiter((shard.num_rows for shard in shards), np.int64, len(shards))
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def identity(url: str) -> str:
    """What stays of a URL from one opening to the next: a web address without its query, which may be signed."""
    return url.partition("?")[0] if scheme_of(url) in WEB_SCHEMES else url


def with_urls(found: Manifest, urls: Sequence[str]) -> Manifest:
    """The same manifest for URLs that may carry new signatures."""
    shards = (replace(shard, url=url) for shard, url in zip(found.shards, urls, strict=True))
    return replace(found, shards=tuple(shards))


def rows_of(batches: Sequence[pa.RecordBatch]) -> Rows:
    """What is held of rows that were just scanned."""
    table = pa.Table.from_batches(batches, schema=ROW_SCHEMA)
    sizes = table.column("size").to_numpy()
    is_small = not len(sizes) or not sizes.max() >> 32
    return Rows(
        table.column("offset").to_numpy(),
        sizes.astype(np.uint32) if is_small else sizes,
        known_crcs(table.column("crc32c")),
    )


def known_crcs(column: pa.ChunkedArray) -> NDArray[np.uint32]:
    """A column of checksums as an array; ``fill_null`` costs 0.2 s for pyarrow.compute, so only where it must."""
    return (column.fill_null(UNKNOWN_CRC) if column.null_count else column).to_numpy()  # type: ignore[no-any-return]
