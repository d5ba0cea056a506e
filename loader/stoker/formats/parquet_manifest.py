"""The manifest of a data set in Parquet shards, as it is held: shards, and where each row group lies.

Footers are held compressed; with its footer a row group can be parsed from its bytes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from stoker.formats.parquet_footer import Footer, Layout

_CODEC = pa.Codec("zstd")


@dataclass(frozen=True, slots=True)
class ParquetShard:
    """One shard. ``version`` is what the store called it when its footer was read, ``digest`` the footer's hash.

    ``layout`` is the number of its layout in the manifest. ``packed_footer`` has ``footer_bytes`` once unpacked. The
    arrays are those of :class:`Footer`.
    """

    url: str
    size_bytes: int
    version: str
    digest: str
    layout: int
    packed_footer: bytes = field(repr=False)
    footer_bytes: int
    group_rows: NDArray[np.int32] = field(repr=False)
    leaf_start: NDArray[np.int64] = field(repr=False)
    leaf_size: NDArray[np.int64] = field(repr=False)

    @property
    def num_rows(self) -> int:
        return int(self.group_rows.sum(dtype=np.int64))

    @property
    def footer(self) -> bytes:
        return _CODEC.decompress(self.packed_footer, self.footer_bytes, asbytes=True)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class ParquetManifest:
    """All shards of a data set. ``url`` is empty if it could be saved nowhere. Each layout is that of some shard.

    ``notices`` say what the user should know at each opening, one sentence each; they are not kept.
    """

    url: str
    layouts: tuple[Layout, ...]
    shards: tuple[ParquetShard, ...]
    notices: tuple[str, ...] = ()

    @property
    def num_rows(self) -> int:
        return sum(shard.num_rows for shard in self.shards)

    @property
    def content_digest(self) -> str:
        """Identity of schemas, row counts, sizes and the order of shards; not of the place they lie in."""
        hasher = blake2b(b"parquet\n", digest_size=16)
        for shard in self.shards:
            hasher.update(f"{shard.digest}\n".encode())
        return hasher.hexdigest()


def make_shard(url: str, size_bytes: int, version: str, layout: int, footer: Footer) -> ParquetShard:
    """A shard whose footer was just read."""
    packed = _CODEC.compress(footer.raw, asbytes=True)
    rows, start, size = footer.num_rows, footer.leaf_start, footer.leaf_size
    return ParquetShard(url, size_bytes, version, footer.digest, layout, packed, len(footer.raw), rows, start, size)
